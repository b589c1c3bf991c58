#include "espalier/jobs/saved/recorded_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/run/earlier.h"
#include "espalier/train/control/recorded.h"

namespace espalier::jobs {
namespace {

namespace fs = std::filesystem;

// What follows the number in the name of a policy's recording: "2_ppo.jsonl".
constexpr std::string_view kPolicyFiles = "_ppo.jsonl";

bool is_of_policy(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.substr(std::min(name.find('_'), name.size())) == kPolicyFiles;
}

// The recording of the one policy that the run compared.
std::string file_in_run(const fs::path& run, std::string_view controller, std::string_view flag) {
  const std::string job = run::job_of(run);
  if (!job.empty() && job != "evaluate")
    fail_usage("{} {}: {}, which has no recordings: want a file of recordings/, or a run of evaluate", flag,
               controller, run::kind_text(job));
  std::vector<fs::path> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / kRecordings, none))
    if (is_of_policy(entry.path())) found.push_back(entry.path());
  if (found.size() != 1)
    fail_usage("{} {}: the run has recordings of {} policies, want one: name a file of {}", flag, controller,
               found.size(), (run / kRecordings).string());
  return found.front().string();
}

}  // namespace

std::string label_of(std::string_view controller) {
  return std::string(controller.substr(0, controller.find(':')));
}

std::string file_label(std::string_view controller) {
  std::string label = label_of(controller);
  std::ranges::replace_if(
      label, [](char c) { return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9'); },
      '_');
  return label;
}

std::string recording_file(size_t controller, std::string_view name) {
  return fmt::format("{}/{}_{}.jsonl", kRecordings, controller + 1, file_label(name));
}

std::optional<RecordedName> recorded_in(std::string_view controller, std::string_view flag) {
  const std::string label = label_of(controller);
  if (label != "static" && label != "replay") return std::nullopt;
  RecordedName name{.kind = label == "static" ? RecordedName::Kind::kStatic : RecordedName::Kind::kReplay};
  if (controller.size() == label.size()) return name;
  name.file = controller.substr(label.size() + 1);
  if (name.file.empty()) fail_usage("{} {}: want the file of a recording after the colon", flag, controller);
  if (fs::is_directory(name.file)) name.file = file_in_run(name.file, controller, flag);
  return name;
}

std::unique_ptr<train::Controller> recorded_controller(RecordedName::Kind kind, train::Recording recording,
                                                       const train::PopulationConfig& options,
                                                       const grow::NetworkStack& population,
                                                       const RecordedPlace& place) {
  train::RecordedOptions recorded{.name = place.name,
                                  .slots = {},
                                  .blueprints = population.blueprints().names(),
                                  .lanes = options.lanes,
                                  .limits = place.limits};
  for (const grow::SlotSpec& slot : population.slots()) recorded.slots.push_back(slot.name);
  if (kind == RecordedName::Kind::kStatic)
    return std::make_unique<train::StaticController>(std::move(recording), recorded);
  const auto compare = [&](std::string_view flag, int64_t then, int64_t now) {
    if (then != now)
      fail_usage("{} {}: {} was recorded with {}; give {} {}", flag, now, place.name, then, flag, then);
  };
  compare(place.length_flag, recording.episode_length, options.epochs);
  compare("--batches-per-step", recording.batches_per_step, options.batches_per_step);
  return std::make_unique<train::ReplayController>(std::move(recording), recorded);
}

}  // namespace espalier::jobs
