#include "espalier/train/run.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "espalier/core/atomic_file.h"
#include "espalier/core/crc32c.h"
#include "espalier/core/error.h"
#include "espalier/core/interrupt.h"
#include "espalier/core/program.h"
#include "espalier/lanes/conv_choice.h"
#include "espalier/watch/report.h"

namespace espalier::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kFormat = "espalier checkpoint";
constexpr int kVersion = 2;  // of manifest and state
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kConfig = "config.json";
constexpr const char* kEnvironment = "environment.json";

// What a run is not made of: where it writes and how it is watched.
constexpr std::array<std::string_view, 12> kFreeKeys = {
    "run-dir",       "resume", "restart",      "allow-change", "checkpoint-minutes", "keep-checkpoints",
    "device-memory", "save",   "convolutions", "timing",       "time-every",         "report-minutes"};

std::string utc_now(const char* format) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), format, &utc);
  return text.data();
}

std::string fresh_name(const std::string& job) {
  return fmt::format("{}-{}-{:06x}", job, utc_now("%Y%m%d-%H%M%S"), std::random_device{}() & 0xffffffu);
}

// `latest` points to the newest run of the folder. Made under another name and renamed, so that it always
// exists.
void link_latest(const fs::path& run) {
  const fs::path link = run.parent_path() / "latest";
  const fs::path made = run.parent_path() / fmt::format(".latest-{}", getpid());
  std::error_code ignored;  // a file system without links has runs, but no `latest`
  fs::remove(made, ignored);
  fs::create_directory_symlink(run.filename(), made, ignored);
  if (!ignored) fs::rename(made, link, ignored);
}

// The run directory that --resume means: itself, or the one around a checkpoint.
fs::path resumed_run(const std::string& resume) {
  const fs::path given = resume == "latest" ? fs::path("runs") / "latest" : fs::path(resume);
  std::error_code code;
  const fs::path path = fs::canonical(given, code);
  if (code) fail_usage("--resume {}: '{}' is not there", resume, given.string());
  if (fs::exists(path / kManifestFile)) return path.parent_path().parent_path();
  if (fs::exists(path / kMetrics)) return path;
  fail_usage("--resume {}: want the directory of a run, one of its checkpoints, or latest", resume);
}

fs::path run_path(const RunOptions& options, const std::string& job) {
  if (options.resume.empty())
    return options.run_dir.empty() ? fs::path("runs") / fresh_name(job) : fs::path(options.run_dir);
  const fs::path resumed = resumed_run(options.resume);
  std::error_code code;
  if (!options.run_dir.empty() && !fs::equivalent(resumed, options.run_dir, code))
    fail_usage("--resume {}: its run is in '{}', and --run-dir says '{}': leave one of them out",
               options.resume, resumed.string(), options.run_dir);
  return resumed;
}

void make_folder(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code) fail("run directory '{}': cannot be made: {}", path.string(), code.message());
}

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file, nullptr, /*allow_exceptions=*/false);
}

std::string shown(const Json& value) {
  return value.is_null() ? "nothing" : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What went wrong, if anything: a page is no result.
std::string written_report(const fs::path& run) {
  try {
    watch::write_report(run);
    return {};
  } catch (const std::exception& error) {
    return error.what();
  }
}

uint32_t checksum(const at::Tensor& values) {
  const at::Tensor host = values.to(at::kCPU).contiguous(c10::MemoryFormat::Contiguous);
  return crc32c(std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
}

}  // namespace

Json dataset_facts(const data::ResidentDataset& dataset) {
  Json facts{{"classes", dataset.class_names}};
  for (const auto& [name, split] :
       {std::pair{"train", &dataset.train}, std::pair{"validation", &dataset.validation},
        std::pair{"test", &dataset.test}}) {
    Json own{{"samples", split->num_samples()}, {"labels", checksum(split->labels)}};
    for (const data::ResidentField& field : split->fields) {
      const data::FieldSpec& spec = field.spec;
      // The affine values are made of means and deviations over all pixels.
      own["fields"].push_back({{"name", spec.name},
                               {"shape", {spec.channels, spec.height, spec.width}},
                               {"affine", checksum(field.affine)}});
    }
    facts[name] = own;
  }
  return facts;
}

Run::Run(const RunOptions& options, std::string job, Json config, RunEvents events)
    : options_(options),
      job_(std::move(job)),
      config_(std::move(config)),
      events_(std::move(events)),
      path_(run_path(options, job_)),
      is_new_(!fs::exists(path_)),
      checkpoints_(path_ / "checkpoints") {
  make_folder(path_);
  lock_.emplace((path_ / "lock").string(), fmt::format("run directory '{}'", path_.string()));
  checkpoints_.sweep();
  std::error_code code;
  const auto metrics_bytes = fs::file_size(path_ / kMetrics, code);
  if (!checkpoints_.names().empty() || (!code && metrics_bytes > 0)) take_over();
  writer_ = std::make_unique<CheckpointWriter>(checkpoints_);
}

Run::~Run() {
  std::error_code ignored;
  if (!has_begun_ && is_new_) fs::remove_all(path_, ignored);
}

// A directory that holds a run: go on with it, or throw it away.
void Run::take_over() {
  if (options_.resume.empty() && options_.restart == "fresh") return;
  checkpoint_ = checkpoint_to_resume();
  if (checkpoint_) return;
  if (!options_.resume.empty() || options_.restart == "resume")
    fail("run directory '{}': has no checkpoint to go on from; begin anew with --restart fresh",
         path_.string());
  // It was stopped before its first checkpoint: begun anew, if it is the same run.
  const Json before = read_json(path_ / kConfig);
  check_fingerprint({{"config", before.is_object() ? before : Json::object()}}, {{"config", config_}});
}

std::shared_ptr<const Checkpoint> Run::checkpoint_to_resume() {
  if (!options_.resume.empty()) {
    const fs::path path = options_.resume == "latest" ? fs::path() : fs::canonical(options_.resume);
    if (fs::exists(path / kManifestFile)) return std::make_shared<Checkpoint>(read_checkpoint(path));
  }
  return newest_checkpoint();
}

std::shared_ptr<const Checkpoint> Run::newest_checkpoint() {
  std::vector<std::string> names = checkpoints_.names();
  std::string error;
  for (; !names.empty(); names.pop_back()) {
    try {
      return std::make_shared<Checkpoint>(read_checkpoint(checkpoints_.path() / names.back()));
    } catch (const Error& damage) {
      error = damage.what();
      warn(fmt::format("{}; going back to the checkpoint before it", error));
    }
  }
  if (!error.empty())
    fail("run directory '{}': every checkpoint is damaged ({}); begin anew with --restart fresh",
         path_.string(), error);
  return nullptr;
}

void Run::begin_anew() {
  for (const std::string& name : checkpoints_.names()) checkpoints_.remove(name);
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name.find("tfevents") != name.npos || name == "report.html" || name == kEnvironment)
      old.push_back(entry);
  }
  for (const fs::path& file : old) fs::remove(file);
  metrics_->cut_to(0);
  write_file(kConfig, config_.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json Run::fingerprint() const {
  Json config = config_;
  for (const std::string_view key : kFreeKeys) config.erase(std::string(key));
  return {{"job", job_}, {"config", config}, {"dataset", dataset_}, {"threads", at::get_num_threads()}};
}

// Key by key: what the run was begun with, and what it is asked to be now.
void Run::check_fingerprint(const Json& old_one, const Json& new_one) const {
  std::set<std::string> allowed(kFreeKeys.begin(), kFreeKeys.end());
  std::stringstream stream(options_.allow_change);
  for (std::string key; std::getline(stream, key, ',');) allowed.insert(key);
  std::string differences;
  std::string keys;
  const auto compare = [&](const std::string& key, const Json& before, const Json& now) {
    if (before == now || allowed.contains(key)) return;
    differences +=
        fmt::format("{}{} was {}, now {}", differences.empty() ? "" : "; ", key, shown(before), shown(now));
    keys += (keys.empty() ? "" : ",") + key;
  };
  for (const auto& item : new_one.items()) {
    const Json before = old_one.value(item.key(), Json());
    if (item.key() != "config") {
      compare(item.key(), before, item.value());
      continue;
    }
    for (const auto& now : item.value().items())
      compare(now.key(), before.value(now.key(), Json()), now.value());
    for (const auto& was : before.items())
      if (!item.value().contains(was.key())) compare(was.key(), was.value(), Json());
  }
  if (!differences.empty())
    fail_usage(
        "run directory '{}' holds another run: {}; give another --run-dir, or --restart fresh to throw it "
        "away, or --allow-change {} to go on all the same",
        path_.string(), differences, keys);
}

void Run::begin(const Facts& facts, Visit visit) {
  visit_ = std::move(visit);
  dataset_ = facts.dataset;
  metrics_ = std::make_unique<MetricsFile>(path_ / kMetrics);
  if (!checkpoint_) begin_anew();
  has_begun_ = true;
  if (options_.run_dir.empty() && options_.resume.empty()) link_latest(path_);
  last_save_ = last_report_ = Clock::now();
  Json environment = read_json(path_ / kEnvironment);
  Json sessions = environment.is_object() ? environment.value("sessions", Json::array()) : Json::array();
  sessions.push_back({{"began", utc_now("%Y-%m-%dT%H:%M:%SZ")},
                      {"resumed", checkpoint_ ? Json(checkpoint_->path.filename().string()) : Json()}});
  const ProgramFacts& program = program_facts();
  environment = Json{{"job", job_},
                     {"command", program.command},
                     {"version", program.version},
                     {"commit", program.commit},
                     {"torch", TORCH_VERSION}};
  if (facts.environment.is_object()) environment.update(facts.environment);
  environment["sessions"] = sessions;
  if (checkpoint_) {
    const Json& manifest = checkpoint_->manifest;
    if (manifest.value("format", "") != kFormat)
      fail("checkpoint '{}': is none of espalier's", checkpoint_->path.string());
    if (manifest.value("version", 0) != kVersion)
      fail(
          "checkpoint '{}': has schema version {}, and this program reads {}: go on with the program that "
          "wrote "
          "it, or begin anew with --restart fresh",
          checkpoint_->path.string(), manifest.value("version", 0), kVersion);
    check_fingerprint(manifest.value("fingerprint", Json::object()), fingerprint());
    lanes::set_conv_choices(manifest.value("convolutions", lanes::ConvChoices{}));
    StateArchive archive(checkpoint_, manifest.value("state", Json::object()));
    visit_(archive);
    archive.check_all_taken();
    batches_ = manifest.value("batches", int64_t{0});
    score_ = manifest.value("score", -1.0);
    metrics_->cut_to(manifest.value("metrics_bytes", int64_t{0}));
    // Those that came later are of lines that were cut off.
    for (const std::string& name : checkpoints_.names()) {
      if (name > checkpoint_->path.filename().string()) checkpoints_.remove(name);
    }
    if (events_.resumed) events_.resumed(checkpoint_->path.filename().string());
  }
  write_file(kEnvironment, environment.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  if (!checkpoint_) pictures_ = facts.pictures;
  if (visit_) write_events([&] { open_events(); });
}

void Run::open_events() {
  event_file_ = std::make_unique<watch::EventFile>(path_);
  metric_events_ =
      std::make_unique<watch::MetricEvents>(*event_file_, config_.value("episode-length", int64_t{1}));
  if (!checkpoint_) return;
  std::ifstream file(path_ / kMetrics);
  Json last = Json::object();
  for (std::string line; std::getline(file, line);)
    if (Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
        json.is_object() && (json.contains("epoch") || json.contains("round")))
      last = std::move(json);
  metric_events_->resume_after(last);
}

void Run::write_events(const std::function<void()>& write) {
  try {
    write();
  } catch (const Error& error) {
    warn(fmt::format("{}; TensorBoard sees no more of this run, metrics.jsonl does", error.what()));
    metric_events_.reset();
    event_file_.reset();
  }
}

void Run::write_file(const std::string& name, const std::string& text) const {
  AtomicFile file((path_ / name).string());
  file.write(text);
  file.commit();
}

void Run::write_metrics(const Json& line) {
  metrics_->add(line);
  if (!metrics_->trouble().empty() && !is_trouble_told_)
    warn(fmt::format("metrics.jsonl cannot be written ({}): training goes on, and lines wait in memory",
                     metrics_->trouble()));
  is_trouble_told_ = !metrics_->trouble().empty();
  if (metric_events_) write_events([&] { metric_events_->add(line); });
  if (events_.line_written) events_.line_written(line);
}

void Run::at_batch() {
  batches_ += 1;
  if (pictures_ && event_file_)
    write_events([&] {
      for (const BatchPicture& picture : pictures_())
        event_file_->image(picture.name, 0, {picture.width, picture.height, picture.channels, picture.bytes});
    });
  pictures_ = {};
  tell_outcome();
  const double minutes = std::chrono::duration<double>(Clock::now() - last_save_).count() / 60;
  // Better late than in the way; but every batch means every batch.
  const bool is_due =
      minutes >= options_.checkpoint_minutes && (options_.checkpoint_minutes == 0 || !writer_->is_busy());
  if (is_due) save();
  report_now_and_then();
}

// In a thread of its own: it only reads what is in the directory.
void Run::report_now_and_then() {
  const double minutes = std::chrono::duration<double>(Clock::now() - last_report_).count() / 60;
  if (minutes < options_.report_minutes) return;
  last_report_ = Clock::now();
  if (report_.valid() && report_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  report_ = std::async(std::launch::async, written_report, path_);
}

void Run::save_last() {
  save();
  is_trained_ = true;
}

void Run::save() {
  if (metric_events_) write_events([&] { metric_events_->flush(); });
  StateArchive archive;
  visit_(archive);
  // Names are in the order of time.
  const std::string name = fmt::format("{:012}", batches_);
  Json manifest{{"format", kFormat},
                {"version", kVersion},
                {"job", job_},
                {"saved", utc_now("%Y-%m-%dT%H:%M:%SZ")},
                {"batches", batches_},
                {"score", score_},
                {"metrics_bytes", metrics_->size_bytes()},
                {"fingerprint", fingerprint()},
                {"convolutions", lanes::conv_choices()},
                {"state", archive.values()}};
  writer_->save({.name = name,
                 .tensors = archive.tensors(),
                 .manifest = std::move(manifest),
                 // Lines that a checkpoint counts on are on the disk before it is.
                 .before_write = [this] { metrics_->flush(); },
                 .after_write = [this] { keep_the_newest_and_the_best(); }});
  last_save_ = Clock::now();
}

void Run::keep_the_newest_and_the_best() {
  const std::vector<std::string> names = checkpoints_.names();
  // Scores are read once a checkpoint: after a resume, those of before are here too.
  for (const std::string& name : names)
    if (!scores_.contains(name)) {
      const Json manifest = read_json(checkpoints_.path() / name / kManifestFile);
      scores_[name] = manifest.is_object() ? manifest.value("score", -1.0) : -1.0;
    }
  std::string best;
  for (const std::string& name : names)
    if (best.empty() || scores_[name] > scores_[best]) best = name;
  const auto keep = static_cast<size_t>(options_.keep_checkpoints);
  for (size_t i = 0; i + keep < names.size(); ++i)
    if (names[i] != best) {
      checkpoints_.remove(names[i]);
      scores_.erase(names[i]);
    }
}

void Run::tell_outcome() {
  const std::optional<SavedCheckpoint> outcome = writer_->take_outcome();
  if (!outcome) return;
  last_error_ = outcome->error;
  if (!outcome->error.empty())
    warn(fmt::format("checkpoint {} was not written: {}; training goes on", outcome->name, outcome->error));
  else if (events_.checkpoint_saved)
    events_.checkpoint_saved(*outcome);
}

void Run::guard(const std::function<void()>& loop) {
  try {
    loop();
  } catch (const Interrupted&) {
    if (visit_ && !is_trained_) save();
    writer_->wait();
    tell_outcome();
    if (visit_ && last_error_.empty() && events_.stopped) events_.stopped(path_);
    throw;
  }
}

void Run::finish() {
  writer_->wait();
  tell_outcome();
  metrics_->flush();
  if (report_.valid()) report_.wait();
  lock_.reset();  // so that the page says how it ended
  if (const std::string error = written_report(path_); !error.empty()) warn(error);
  if (!last_error_.empty())
    fail("the run ended, but its last checkpoint was not written: {}; results are in '{}'", last_error_,
         path_.string());
}

void Run::warn(const std::string& text) const {
  if (events_.warned) events_.warned(text);
}

}  // namespace espalier::train
