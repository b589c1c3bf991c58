// How a training job is shown: a live view where standard output is a terminal (--tui), plain lines elsewhere
// and with --no-tui.
//
// Kept true: what a job says stays with the user. Without the view it is printed at once; with it, it is
// shown, and printed on the normal screen when the view goes, however the job ends.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/cli/command.h"
#include "espalier/core/progress.h"
#include "espalier/run/directory.h"
#include "espalier/watch/live/screen.h"

namespace espalier::cli {

// What a job says that a signal stopped while its data was loading.
inline constexpr const char* kStoppedEarly =
    "stopped before the run began, and nothing is left of it: the same command starts it\n";

class TrainScreen {
 public:
  TrainScreen(const Context& context, std::string job);
  ~TrainScreen();
  TrainScreen(const TrainScreen&) = delete;
  TrainScreen& operator=(const TrainScreen&) = delete;

  // For the job's events; they must not outlive the screen.
  Progress progress();
  run::RunEvents run_events();

  // After what is printed at a start: from here on the view is shown. devices: whose memory it tells.
  void begin(const std::filesystem::path& run, const watch::RunExtent& extent,
             const std::vector<c10::Device>& devices);
  bool is_live() const { return is_live_; }

  // Whole lines.
  void say(std::string_view text);
  // One sentence, without its newline.
  void warn(const std::string& text);

  // Before what is printed at the end: the view goes.
  void end();

 private:
  std::string job_;
  bool is_live_;
  bool has_begun_ = false;
  watch::ColorChoice color_;
  std::filesystem::path run_;
  Progress plain_;
  std::optional<watch::LiveScreen> screen_;
  std::deque<std::string> said_;  // while the view is shown
  int64_t num_forgotten_ = 0;
};

}  // namespace espalier::cli
