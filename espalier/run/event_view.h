// The metrics of a run as TensorBoard's event files.
//
// Kept true: they are a view, not a result: where they cannot be written, that is told once, they are given
// up, and the run goes on.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "espalier/watch/tensorboard/png.h"
#include "espalier/watch/tensorboard/scalars.h"

namespace espalier::run {

class EventView {
 public:
  using Pictures = std::function<std::vector<watch::NamedPicture>()>;

  // warn: is told why nothing is written any more.
  explicit EventView(std::function<void(const std::string&)> warn) : warn_(std::move(warn)) {}

  // In the directory of a run. episode_length: epochs per round, 1 where there are no rounds.
  void open(const std::filesystem::path& run, int64_t episode_length);
  // The same for a run that goes on behind the lines that its metrics hold.
  void resume(const std::filesystem::path& run, int64_t episode_length);

  void add(const nlohmann::ordered_json& line);
  void add(const std::vector<watch::NamedPicture>& pictures);
  void flush();
  bool is_open() const { return metrics_ != nullptr; }

 private:
  void attempt(const std::function<void()>& write);

  std::function<void(const std::string&)> warn_;
  std::unique_ptr<watch::EventFile> file_;  // none before open(), or after it failed
  std::unique_ptr<watch::MetricEvents> metrics_;
};

}  // namespace espalier::run
