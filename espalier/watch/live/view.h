// The screen of a running job, as lines of text: pure, so that a test can look at it. screen.h puts it
// on a terminal.
//
// Kept true: a frame has at most as many lines as there are rows, none wider than the columns, and without
// colour no escape sequence in it, at any size. What does not fit is left out, least important first; rows
// (lanes, streams) can be scrolled, and a line says how many there are. A line that is cut ends with a mark.
#pragma once

#include <deque>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/watch/live/state.h"
#include "espalier/watch/terminal/screen_line.h"

namespace espalier::watch {

struct MemoryUse {
  int64_t used_bytes = 0;
  int64_t total_bytes = 0;  // 0: not known
};

struct LiveViewOptions {
  std::string job;  // "population"
  std::string run;  // the run directory's name
  RunExtent extent;
  ScreenStyle style;
  std::function<std::optional<MemoryUse>()> device_memory = {};  // may be empty; called once a second at most
  std::function<double()> seconds = {};                          // a clock; empty: the steady one
};

class LiveView {
 public:
  explicit LiveView(LiveViewOptions options);

  void add(const nlohmann::ordered_json& line);
  void report(std::string_view what, int64_t done, int64_t total);  // an espalier::Progress
  void say(std::string_view message);                               // one or more lines
  void stop_asked() { is_stopping_ = true; }
  void scroll(int64_t rows) { first_row_ += rows; }
  void scroll_page(int64_t pages) { first_row_ += pages * rows_shown_; }

  std::vector<std::string> frame(int columns, int rows);

 private:
  struct Layout;

  ScreenLine line(int columns) const { return {columns, options_.style}; }
  std::string title(int columns) const;
  std::string progress(int columns) const;
  std::string summary(int columns) const;
  std::string choices(int columns) const;
  std::string speed(int columns);
  std::string work(int columns) const;
  std::string heading(int columns, const Layout& layout) const;
  std::string row(const LiveRow& row, int columns, const Layout& layout) const;
  std::string extremes() const;
  // What is under way before there is any row.
  void add_beginning(std::vector<std::string>& lines, int columns, int rows) const;
  double share_under_way() const;            // in the epoch that is being trained
  std::optional<double> share_done() const;  // in the run, with what is under way
  Layout layout_of(int columns) const;
  void add_rows(std::vector<std::string>& lines, int columns, int rows, bool has_heading);

  LiveViewOptions options_;
  LiveState state_;
  double began_;
  std::string what_;  // the work under way
  int64_t done_ = 0;
  int64_t total_ = 0;
  double work_began_ = 0;             // when it was first told of
  std::deque<std::string> messages_;  // the last few
  bool is_stopping_ = false;
  int64_t first_row_ = 0;
  int64_t rows_shown_ = 1;
  std::optional<MemoryUse> memory_;
  std::optional<double> memory_read_;  // when
};

}  // namespace espalier::watch
