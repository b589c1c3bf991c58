#include "espalier/watch/lines/reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/core/files/lock.h"
#include "espalier/core/lane_outcome.h"
#include "espalier/core/text/utf8.h"
#include "espalier/run/files/metric_keys.h"
#include "espalier/run/files/packed_metrics.h"

namespace espalier::watch {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;  // for lines: a hostile one with very many keys would take an ordered one quadratic
                       // time
using nlohmann::ordered_json;

// A confusion matrix of a thousand classes takes a few megabytes; what is longer was not written by us.
constexpr size_t kLongestLine = size_t{32} << 20;
constexpr int64_t kLargestJsonFile = int64_t{256} << 10;
constexpr int kDeepestJson = 16;
constexpr int64_t kPieceBytes = int64_t{4} << 20;
// Lines of compressed metrics: a small file may claim to hold any number of them.
constexpr int64_t kMostPackedBytes = int64_t{4} << 30;
// What any real run stays far below: keeps a hostile file from making lists without end.
constexpr int64_t kMostLanes = 1 << 16;
constexpr size_t kMostNames = 4096;
constexpr int64_t kLargestStep = int64_t{1} << 53;  // exact in JavaScript

double number_of(const json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  const double number = value.is_number() ? value.get<double>() : kMissing;
  return std::isfinite(number) ? number : kMissing;
}

double number_at(const json& line, const char* key) {
  const auto found = line.find(key);
  return found == line.end() ? kMissing : number_of(*found);
}

// A count from 0 to `most`, or none.
std::optional<int64_t> count_at(const json& line, const char* key, int64_t most) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(most))
    return std::nullopt;
  const auto value = found->get<int64_t>();
  return value >= 0 && value <= most ? std::optional(value) : std::nullopt;
}

template <class Json>
std::string text_at(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->template get<std::string>() : std::string();
}

Numbers numbers_of(const json& object) {
  Numbers numbers;
  for (const auto& [key, value] : object.items())
    if (value.is_number() || value.is_boolean() || value.is_null()) numbers[key] = number_of(value);
  return numbers;
}

std::map<std::string, Numbers> streams_of(const json& line) {
  std::map<std::string, Numbers> streams;
  const auto found = line.find("streams");
  if (found == line.end() || !found->is_object()) return streams;
  for (const auto& [name, values] : found->items())
    if (values.is_object() && streams.size() < kMostNames) streams[name] = numbers_of(values);
  return streams;
}

std::optional<SeedStage> stage_named(const std::string& name) {
  for (int stage = 0; stage < kNumSeedStages; ++stage)
    if (name == name_of(static_cast<SeedStage>(stage))) return static_cast<SeedStage>(stage);
  return std::nullopt;
}

// Its place in the list, to which it is added where it is new.
std::optional<uint32_t> place_of(std::vector<std::string>& names, const std::string& name) {
  if (name.empty()) return std::nullopt;
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) {
    if (names.size() >= kMostNames) return std::nullopt;
    names.push_back(name);
    return static_cast<uint32_t>(names.size() - 1);
  }
  return static_cast<uint32_t>(found - names.begin());
}

void add_slots(RunRecord& record, const json& line, LaneLine& lane) {
  const auto found = line.find("slots");
  if (found == line.end() || !found->is_array()) return;
  for (const json& each : *found) {
    if (!each.is_object()) continue;
    const auto stage = stage_named(text_at(each, "stage"));
    const auto slot = place_of(record.slots, text_at(each, "slot"));
    if (!stage || !slot) continue;
    lane.slots.push_back({.slot = *slot,
                          .stage = *stage,
                          .blueprint = place_of(record.blueprints, text_at(each, "blueprint")),
                          .amplitude = number_at(each, "amplitude"),
                          .contribution_points = number_at(each, "contribution_points")});
  }
}

// "GERMINATE r1c2 conv_light"; no text: the lane waited.
void add_action(RunRecord& record, const json& line, LaneLine& lane) {
  const std::string text = text_at(line, "action");
  const size_t space = text.find(' ');
  for (int op = 0; op < kNumSeedOps; ++op)
    if (text.compare(0, space, name_of(static_cast<SeedOp>(op))) == 0) lane.op = static_cast<SeedOp>(op);
  const size_t last = text.rfind(' ');
  if (lane.op == SeedOp::kGerminate && last != space)
    lane.planted = place_of(record.blueprints, text.substr(last + 1));
}

void add_collapse(RunRecord& record, const json& line, LaneLine& lane) {
  const std::string collapse = text_at(line, "collapse");
  if (!is_collapse(collapse)) return;
  lane.collapse = collapse;
  const auto found = line.find("barred");
  if (found == line.end() || !found->is_array()) return;
  for (const json& each : *found)
    if (const auto slot = each.is_string() ? place_of(record.slots, each.get<std::string>()) : std::nullopt)
      lane.barred.push_back(*slot);
}

bool add_lane(RunRecord& record, const json& line) {
  const bool has_rounds = line.contains("round");
  const auto lane = count_at(line, "lane", kMostLanes - 1);
  const auto round = has_rounds ? count_at(line, "round", kLargestStep) : 0;
  const auto step = count_at(line, has_rounds ? "step" : "epoch", kLargestStep);
  if (!lane || !round || !step) return false;
  LaneLine made{.round = *round, .step = *step, .lane = *lane};
  for (const LaneNumber& each : kLaneNumbers) made.*each.member = number_at(line, each.key);
  add_slots(record, line, made);
  const std::string outcome = text_at(line, "outcome");
  made.is_trained = outcome.empty() || outcome == name_of(LaneOutcome::kTrained);
  add_collapse(record, line, made);
  add_action(record, line, made);
  record.lanes.push_back(std::move(made));
  return true;
}

void add_confusion(const json& line, Result& result) {
  const auto classes = line.find("classes"), confusion = line.find("confusion");
  if (classes == line.end() || confusion == line.end() || !classes->is_array() || !confusion->is_array())
    return;
  for (const json& name : *classes)
    result.classes.push_back(name.is_string() ? name.get<std::string>() : "?");
  for (const json& row : *confusion) {
    if (!row.is_array() || row.size() != classes->size()) break;
    std::vector<double>& counts = result.confusion.emplace_back();
    for (const json& count : row) counts.push_back(number_of(count));
  }
  if (result.confusion.size() == result.classes.size()) return;
  result.classes.clear();
  result.confusion.clear();
}

bool add_result(RunRecord& record, const json& line) {
  Result result{.numbers = numbers_of(line), .streams = streams_of(line)};
  add_confusion(line, result);
  record.result = std::move(result);
  return true;
}

bool add_lane_result(RunRecord& record, const json& line) {
  const auto lane = count_at(line, "lane", kMostLanes - 1);
  if (!lane) return false;
  record.lane_results.push_back({.lane = *lane,
                                 .test_loss = number_at(line, "test_loss"),
                                 .test_accuracy = number_at(line, "test_accuracy"),
                                 .parameters = number_at(line, "parameters"),
                                 .seeds_kept = number_at(line, "seeds_kept")});
  return true;
}

bool add_evaluated_lane(RunRecord& record, const json& line) {
  const auto controller = place_of(record.controllers, text_at(line, "controller"));
  const auto episode = count_at(line, "episode", kLargestStep);
  const auto lane = count_at(line, "lane", kMostLanes - 1);
  if (!controller || !episode || !lane) return false;
  record.evaluated_lanes.push_back({.controller = *controller,
                                    .episode = *episode,
                                    .lane = *lane,
                                    .test_accuracy = number_at(line, "test_accuracy"),
                                    .episode_return = number_at(line, "return"),
                                    .parameters = number_at(line, "parameters"),
                                    .seeds_kept = number_at(line, "seeds_kept")});
  return true;
}

bool add_evaluated(RunRecord& record, const json& line) {
  const auto controller = place_of(record.controllers, text_at(line, "controller"));
  if (controller)
    record.evaluated.push_back({.controller = *controller,
                                .numbers = numbers_of(line),
                                .intervals_over = text_at(line, "intervals_over")});
  return controller.has_value();
}

bool add_epoch(RunRecord& record, const json& line) {
  const auto epoch = count_at(line, "epoch", kLargestStep);
  if (epoch)
    record.epochs.push_back({.epoch = *epoch, .numbers = numbers_of(line), .streams = streams_of(line)});
  return epoch.has_value();
}

bool add_round(RunRecord& record, const json& line) {
  const auto round = count_at(line, "round", kLargestStep);
  if (round) record.rounds.push_back({.round = *round, .numbers = numbers_of(line)});
  return round.has_value();
}

// False: it lacks what its kind must have.
bool add_parsed(RunRecord& record, const json& line) {
  using enum run::LineKind;
  record.result.reset();  // only a result that ends the file is one: see RunRecord::state
  const std::optional<run::LineKind> kind = run::kind_of_line(line);
  if (!kind) return true;  // a kind of another version
  switch (*kind) {
    case kLane:
      return add_lane(record, line);
    case kEpochOfMany:
    case kEpochOfOne:
      return add_epoch(record, line);
    case kRound:
      return add_round(record, line);
    case kLaneResult:
      return add_lane_result(record, line);
    case kEvaluatedLane:
      return add_evaluated_lane(record, line);
    case kEvaluated:
      return add_evaluated(record, line);
    case kResult:
      return add_result(record, line);
    case kMemoryFormat:  // shown by nobody
    case kCompared:
    case kSlot:  // inside of a line
    case kEpochStream:
    case kResultStream:
      return true;
  }
  return true;
}

// The job by what the run left behind, for directories that do not say.
std::string guessed_job(const RunRecord& record) {
  for (const char* job : {"host", "population", "linet", "ppo", "evaluate"})
    if (record.name.starts_with(fmt::format("{}-", job))) return job;
  if (!record.rounds.empty()) return "ppo";
  if (!record.evaluated_lanes.empty()) return "evaluate";
  if (!record.epochs.empty() && !record.epochs.front().streams.empty()) return "linet";
  if (!record.lanes.empty()) return record.lanes.front().round > 0 ? "ppo" : "population";
  return record.epochs.empty() ? "?" : "host";
}

std::string iso_text(const struct timespec& time) {
  std::tm utc{};
  char text[32];
  if (gmtime_r(&time.tv_sec, &utc) == nullptr) return {};
  return std::string(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc));
}

// An open regular file, closed with the object.
class OpenFile {
 public:
  explicit OpenFile(const fs::path& path)
      // Not blocking: a pipe by that name would keep us waiting.
      : descriptor_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    is_readable_ = descriptor_ >= 0 && fstat(descriptor_, &status_) == 0 && S_ISREG(status_.st_mode);
  }
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  explicit operator bool() const { return is_readable_; }
  const struct stat& status() const { return status_; }

  std::string read_at(int64_t offset, int64_t most) const {
    std::string text(static_cast<size_t>(most), '\0');
    size_t filled = 0;
    while (filled < text.size()) {
      const ssize_t got = pread(descriptor_, text.data() + filled, text.size() - filled,
                                offset + static_cast<int64_t>(filled));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) break;
      filled += static_cast<size_t>(got);
    }
    text.resize(filled);
    return text;
  }

 private:
  int descriptor_ = -1;
  bool is_readable_ = false;
  struct stat status_ {};
};

}  // namespace

void add_line(RunRecord& record, std::string_view line) {
  if (line.empty()) return;
  ++record.num_lines;
  const json parsed = json::parse(line, nullptr, false);
  if (!parsed.is_object() || !add_parsed(record, parsed)) ++record.num_damaged;
}

RunReader::RunReader(const fs::path& run) {
  std::error_code code;
  path_ = fs::canonical(run, code);
  if (code) fail("run '{}': {}: give a run directory, such as runs/latest", run.string(), code.message());
  if (!fs::is_directory(path_, code))
    fail("run '{}': a file: give the directory that holds it", run.string());
  start_over();
}

void RunReader::start_over() {
  RunRecord fresh;
  fresh.name = path_.filename().string();
  if (!is_utf8(fresh.name)) fresh.name = in_quotes(fresh.name);
  fresh.config = std::move(record_.config);
  fresh.environment = std::move(record_.environment);
  record_ = std::move(fresh);
  offset_bytes_ = 0;
  is_skipping_ = false;
}

bool RunReader::refresh() {
  bool is_changed = read_json("config.json", record_.config, seen_config_);
  is_changed |= read_json("environment.json", record_.environment, seen_environment_);
  is_changed |= read_metrics();
  is_changed |= read_state();
  is_changed |= !was_read_;
  was_read_ = true;
  return is_changed;
}

bool RunReader::read_json(const std::string& name, ordered_json& into, std::string& seen) const {
  const OpenFile file(path_ / name);
  const auto& status = file.status();
  const std::string version = !file ? "none"
                                    : fmt::format("{} {} {}.{}", status.st_ino, status.st_size,
                                                  status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  if (version == seen) return false;
  seen = version;
  into = ordered_json::object();
  if (!file || status.st_size > kLargestJsonFile) return true;
  // Copies and prints of a value are recursive: one nested without end would take the whole stack.
  const auto is_shallow = [](int depth, ordered_json::parse_event_t, const ordered_json&) {
    return depth <= kDeepestJson;
  };
  ordered_json parsed = ordered_json::parse(file.read_at(0, status.st_size), is_shallow, false);
  if (parsed.is_object()) into = std::move(parsed);
  return true;
}

// Whole lines go from `pending` into the record; what is left is the beginning of one.
bool RunReader::take_lines(std::string& pending) {
  size_t begin = 0;
  for (size_t end; (end = pending.find('\n', begin)) != std::string::npos; begin = end + 1) {
    if (!is_skipping_) add_line(record_, std::string_view(pending).substr(begin, end - begin));
    is_skipping_ = false;
  }
  pending.erase(0, begin);
  if (pending.size() > kLongestLine) {
    if (!is_skipping_) ++record_.num_lines, ++record_.num_damaged;
    is_skipping_ = true;
  }
  if (is_skipping_) pending.clear();
  return begin > 0;
}

// Compressed ones are of a finished run: read once, as a whole.
bool RunReader::read_packed_metrics() {
  const OpenFile file(path_ / run::kPackedMetrics);
  if (!file || file.status().st_ino == metrics_file_) return false;
  start_over();
  metrics_file_ = file.status().st_ino;
  std::string pending;
  int64_t taken_bytes = 0;
  run::read_packed(path_, [&](std::string_view piece) {
    taken_bytes += std::ssize(piece);
    if (taken_bytes > kMostPackedBytes) return;
    pending += piece;
    take_lines(pending);
  });
  return true;
}

bool RunReader::read_metrics() {
  if (run::is_packed(path_)) return read_packed_metrics();
  const OpenFile file(path_ / "metrics.jsonl");
  const int64_t size = file ? file.status().st_size : 0;
  const uint64_t inode = file ? file.status().st_ino : 0;
  bool is_changed = false;
  if (size < offset_bytes_ || inode != metrics_file_) {
    is_changed = offset_bytes_ > 0;
    start_over();
  }
  metrics_file_ = inode;
  std::string pending;  // bytes from offset_bytes_ on
  for (int64_t at = offset_bytes_; at < size;) {
    const std::string piece = file.read_at(at, std::min(kPieceBytes, size - at));
    if (piece.empty()) break;  // shortened meanwhile: seen at the next call
    at += std::ssize(piece);
    pending += piece;
    is_changed |= take_lines(pending);
    offset_bytes_ = at - std::ssize(pending);
  }
  return is_changed;
}

bool RunReader::read_state() {
  const std::string job = text_at(record_.environment, "job");
  record_.job = job.empty() ? guessed_job(record_) : job;
  record_.began = text_at(record_.environment, "began");
  if (record_.began.empty())
    if (const OpenFile config(path_ / "config.json"); config)
      record_.began = iso_text(config.status().st_mtim);

  const RunState before = record_.state;
  std::error_code ignored;
  const fs::path lock = path_ / "lock";
  const auto holder = fs::is_regular_file(lock, ignored) ? lock_holder(lock.string()) : std::nullopt;
  record_.holder = holder && is_utf8(*holder) ? *holder : "";
  record_.state = holder ? RunState::kRunning : record_.result ? RunState::kFinished : RunState::kStopped;
  return record_.state != before;
}

RunRecord read_run(const fs::path& run) {
  RunReader reader(run);
  reader.refresh();
  return reader.record();
}

bool holds_run(const fs::path& directory) {
  std::error_code ignored;
  return fs::is_regular_file(directory / "metrics.jsonl", ignored) || run::is_packed(directory) ||
         fs::is_regular_file(directory / "config.json", ignored);
}

void check_is_run(const fs::path& directory) {
  std::error_code code;
  if (!fs::is_directory(directory, code)) static_cast<void>(RunReader(directory));  // says why
  if (!holds_run(directory))
    fail("run '{}': holds no run: neither metrics.jsonl nor config.json is there", directory.string());
}

}  // namespace espalier::watch
