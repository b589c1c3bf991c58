#include "espalier/run/directory.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <cmath>
#include <fstream>

#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/core/machine/program.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/run/earlier.h"
#include "espalier/run/files/metric_keys.h"
#include "espalier/run/files/packed_metrics.h"
#include "espalier/run/fingerprint.h"
#include "espalier/run/location.h"
#include "espalier/run/manifest.h"
#include "espalier/run/newest_checkpoint.h"

namespace espalier::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr const char* kConfig = "config.json";
constexpr const char* kEnvironment = "environment.json";
// Ranks ask each other so seldom that it costs nothing, and so often that a signal is heard soon.
constexpr int64_t kBatchesBetweenAgreements = 16;

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file, nullptr, /*allow_exceptions=*/false);
}

std::string pretty(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Run::Run(const RunConfig& options, std::string job, Json config, RunEvents events, ranks::World& world)
    : options_(options),
      job_(std::move(job)),
      // A program of one's own need not say what it was told.
      config_(config.is_null() ? Json::object() : std::move(config)),
      events_(std::move(events)),
      world_(world),
      path_(world.leads() ? run_path(options, job_) : fs::path()),  // the others are told
      checkpoints_(path_ / kCheckpoints),
      kept_(checkpoints_, options_.keep_checkpoints),
      curves_([this](const std::string& text) { warn(text); }),
      page_(path_, options_.report_minutes) {
  // Before any message whose length or number flags decide. Threads and data are not known yet.
  check_alike({{"job", job_}, {"config", without_free_keys(config_)}});
  if (world_.leads()) open_directory();
  share_the_start();
}

void Run::open_directory() {
  if (options_.run_dir.empty() && options_.resume.empty()) {
    if (options_.restart == Restart::kResume)
      fail_usage(
          "--restart resume: wants a run to go on with: give its directory with --run-dir or --resume");
    if (const auto stopped = stopped_run_like(kRunsFolder, job_, config_))
      note(fmt::format("{} was stopped, and has the same configuration; to go on with it instead: {}",
                       stopped->string(), resume_command(job_, *stopped)));
  }
  folder_.emplace(path_);
  checkpoints_.sweep();
  std::error_code code;
  const auto metrics_bytes = fs::file_size(path_ / kMetrics, code);
  if (!options_.resume.empty() || !checkpoints_.names().empty() || (!code && metrics_bytes > 0) ||
      is_packed(path_))
    take_over();
  else if (options_.restart == Restart::kResume)
    fail(
        "run directory '{}': holds no run to go on with, and --restart resume wants one: leave it out to "
        "begin one",
        path_.string());
  const Json before = read_json(path_ / kConfig);
  has_begun_before_ =
      checkpoint_ || (options_.restart != Restart::kFresh && before.is_object() &&
                      differences(without_free_keys(before), without_free_keys(config_)).empty());
  writer_ = std::make_unique<CheckpointWriter>(checkpoints_);
}

// The other ranks learn where the run is and when they are asked, and get the checkpoint that rank 0 read:
// they need not see the disk it is on.
void Run::share_the_start() {
  if (world_.is_alone()) return;
  Json told{{"path", path_.string()}, {"checkpoint-minutes", options_.checkpoint_minutes}};
  if (checkpoint_) {
    told["checkpoint"] = checkpoint_->path.string();
    told["manifest"] = checkpoint_->manifest;
  }
  std::string text = told.dump();
  world_.broadcast(text);
  told = Json::parse(text);
  options_.checkpoint_minutes = told.at("checkpoint-minutes").get<double>();
  if (!world_.leads()) path_ = told.at("path").get<std::string>();
  if (!told.contains("checkpoint")) return;
  auto bytes = std::make_shared<ranks::Bytes>();
  if (world_.leads()) {
    const std::span<const std::byte> own = checkpoint_->file.bytes();
    bytes->assign(own.begin(), own.end());
  }
  world_.broadcast(*bytes);
  if (world_.leads()) return;
  auto read = std::make_shared<Checkpoint>();
  read->path = told.at("checkpoint").get<std::string>();
  read->manifest = told.at("manifest");
  read->file = {.data = std::shared_ptr<const std::byte>(bytes, bytes->data()), .size_bytes = bytes->size()};
  read->header = parse_safetensors(read->file.bytes(), (read->path / kStateFile).string());
  checkpoint_ = std::move(read);
}

Run::~Run() = default;

double Run::seconds() const {
  return earlier_seconds_ + std::chrono::duration<double>(Clock::now() - began_).count();
}

// A directory that holds a run: go on with it, or throw it away.
void Run::take_over() {
  if (options_.restart == Restart::kFresh) {
    if (!options_.resume.empty() && options_.resume != "latest" &&
        fs::exists(fs::path(options_.resume) / kManifestFile))
      fail_usage(
          "--resume {}: is a checkpoint to go on from, and --restart fresh throws the run away: leave one of "
          "them out",
          options_.resume);
    return;
  }
  if (const std::string other = job_of(path_); !other.empty() && other != job_)
    fail_usage("run directory '{}': {}: go on with it by '{}', or give another --run-dir", path_.string(),
               kind_text(other), resume_command(other, path_));
  const fs::path asked =
      options_.resume.empty() || options_.resume == "latest" ? fs::path() : fs::canonical(options_.resume);
  checkpoint_ = fs::exists(asked / kManifestFile)
                    ? std::make_shared<Checkpoint>(read_checkpoint(asked))
                    : newest_checkpoint(checkpoints_, [this](const std::string& text) { warn(text); });
  if (checkpoint_) return;
  if (!options_.resume.empty() || options_.restart == Restart::kResume)
    fail("run directory '{}': has no checkpoint to go on from; begin anew with --restart fresh",
         path_.string());
  // It was stopped before its first checkpoint: begun anew, if it is the same run.
  const Json before = read_json(path_ / kConfig);
  check_same({{"config", without_free_keys(before.is_object() ? before : Json::object())}},
             {{"config", without_free_keys(config_)}});
}

void Run::start_new() {
  for (const std::string& name : checkpoints_.names()) checkpoints_.remove(name);
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name.find("tfevents") != name.npos || name == "report.html" || name == kEnvironment ||
        name == kPackedMetrics)
      old.push_back(entry);
  }
  for (const fs::path& file : old) fs::remove(file);
  metrics_->cut_to(0);
  write_file(kConfig, pretty(config_));
}

Json Run::fingerprint() const {
  return {{"job", job_},
          {"config", without_free_keys(config_)},
          {"dataset", dataset_},
          {"threads", at::get_num_threads()}};
}

void Run::check_same(const Json& before, const Json& now, const Json& noted) const {
  check_fingerprint({.run = path_.string(),
                     .before = before,
                     .now = now,
                     .config = config_,
                     .noted = noted,
                     .allowed = options_.allow_change});
}

// What must be the same at all ranks; a rank that differs is named.
void Run::check_alike(const Json& own) {
  if (world_.is_alone()) return;
  const std::vector<std::string> all = world_.gather(own.dump());
  if (!world_.leads()) return;
  for (size_t rank = 1; rank < all.size(); ++rank) {
    const Json changed = differences(own, Json::parse(all[rank]));
    if (changed.empty()) continue;
    std::string what = changed.begin().key();
    Json apart = changed.begin().value();
    while (apart["was"].is_object() && apart["now"].is_object()) {
      const Json inner = differences(apart["was"], apart["now"]);
      if (inner.empty()) break;  // alike but for the order of their keys
      what += fmt::format(", {}", inner.begin().key());
      apart = inner.begin().value();
    }
    fail_usage(
        "rank {} is not like rank 0: {}: rank 0 has {}, rank {} has {}; all ranks take the same flags, data "
        "and number of --threads",
        rank, what, shown(apart["was"]), rank, shown(apart["now"]));
  }
}

// Puts the checkpoint's state into the job.
void Run::restore() {
  const std::string where = fmt::format("checkpoint '{}'", checkpoint_->path.string());
  const Json& manifest = checkpoint_->manifest;
  if (choices_.repeat) choices_.repeat(choices_in(manifest, where));
  StateArchive archive(checkpoint_, object_field(manifest, "state", where));
  visit_(archive);
  archive.check_all_taken();
  batches_ = integer_field(manifest, "batches", 0, where);
}

// What rank 0 decided.
bool Run::says_rank_0(bool own) {
  return world_.largest(world_.leads() && own ? 1 : 0) != 0;
}

void Run::begin(const Facts& facts, Visit visit) {
  visit_ = std::move(visit);
  dataset_ = facts.dataset;
  choices_ = facts.choices;
  check_alike(fingerprint());
  if (!world_.leads()) {
    if (checkpoint_) restore();
    return;
  }
  const bool was_finished = checkpoint_ && ends_with_result(path_);
  if (checkpoint_) unpack_metrics(path_);
  metrics_ = std::make_unique<MetricsFile>(path_ / kMetrics);
  if (!checkpoint_) start_new();
  last_save_ = Clock::now();
  page_.start();
  Json environment = read_json(path_ / kEnvironment);
  // What is damaged there is begun anew: it is for people to look at, and nothing depends on it.
  Json sessions = environment.is_object() ? environment.value("sessions", Json::array()) : Json::array();
  if (!sessions.is_array()) sessions = Json::array();
  Json session{{"began", utc_now("%Y-%m-%dT%H:%M:%SZ")},
               {"resumed", checkpoint_ ? Json(checkpoint_->path.filename().string()) : Json()}};
  Json config = read_json(path_ / kConfig);
  if (!config.is_object()) config = config_;
  if (checkpoint_) {
    const bool is_newest = checkpoints_.names().back() == checkpoint_->path.filename();
    const Json changed = load(config, noted_changes(sessions));
    if (!changed.empty()) session["changed"] = changed;
    if (events_.resumed) events_.resumed(checkpoint_->path.filename().string());
    if (was_finished && is_newest && changed.empty()) tell_finished();
  }
  sessions.push_back(session);
  const ProgramFacts& program = program_facts();
  environment = Json{{"job", job_},
                     {"command", program.command},
                     {"version", program.version},
                     {"commit", program.commit},
                     {"torch", TORCH_VERSION}};
  if (facts.environment.is_object()) environment.update(facts.environment);
  environment["sessions"] = sessions;
  // The note first: with it, checkpoints from before the change are still this run's.
  write_file(kEnvironment, pretty(environment));
  renew_config(std::move(config));
  if (!checkpoint_) pictures_ = facts.pictures;
  if (visit_ && facts.curves == Curves::kWritten) open_curves();
  folder_->keep();
  link_latest(path_);
}

// Goes on from the checkpoint, and cuts off what came after it. Returns what this start changes.
Json Run::load(const Json& config, const Json& noted) {
  const Json& manifest = checkpoint_->manifest;
  const std::string where = fmt::format("checkpoint '{}'", checkpoint_->path.string());
  check_manifest_head(manifest, where);
  const Json before = object_field(manifest, "fingerprint", where), now = fingerprint();
  object_field(before, "config", where);  // that it is one, where it is there
  check_same(before, now, noted);
  Json changed = differences(without_free_keys(config), now["config"]);
  for (const char* const key : {"threads", "dataset"})
    if (const Json was = before.value(key, Json()); was != now[key])
      changed[key] = {{"was", was}, {"now", now[key]}};

  restore();
  // A state within an epoch has none.
  if (!manifest.value("score", Json()).is_null()) score_ = number_field(manifest, "score", 0, where);
  earlier_seconds_ = number_field(manifest, "seconds", 0, where);
  metrics_->cut_to(integer_field(manifest, "metrics_bytes", 0, where));
  // Checkpoints that came later belong to lines that were cut off.
  for (const std::string& name : checkpoints_.names())
    if (name > checkpoint_->path.filename().string()) checkpoints_.remove(name);
  best_score_ = kept_.best_score();
  return changed;
}

void Run::tell_finished() const {
  const char* const length = config_.contains("rounds") ? "rounds" : "epochs";
  if (!config_.contains(length)) return note("this run is finished: its results come again");
  note(
      fmt::format("this run is finished: nothing is left to train, and its results come again; to train on, "
                  "give more --{} and --allow-change {}",
                  length, length));
}

// Keys that a run is not made of stay as the first start had them: --resume reads them.
void Run::renew_config(Json written) const {
  const Json now = fingerprint()["config"];
  const Json changed = differences(without_free_keys(written), now);
  if (changed.empty()) return;
  for (const auto& item : changed.items()) {
    if (now.contains(item.key()))
      written[item.key()] = now[item.key()];
    else
      written.erase(item.key());
  }
  write_file(kConfig, pretty(written));
}

void Run::open_curves() {
  const auto episode_length = config_.value("episode-length", int64_t{1});
  if (checkpoint_)
    curves_.resume(path_, episode_length);
  else
    curves_.open(path_, episode_length);
}

void Run::write_file(const std::string& name, const std::string& text) const {
  if (!world_.leads()) return;
  AtomicFile file((path_ / name).string());
  file.write(text);
  file.commit();
}

bool Run::is_left_out(const Json& line) const {
  if (options_.lane_lines == 1 || kind_of_line(line) != LineKind::kLane) return false;
  if (options_.lane_lines == 0) return true;
  const bool has_rounds = line.contains("round");
  const int64_t place = line.value(has_rounds ? "round" : "epoch", int64_t{1});
  const Json last = config_.value(has_rounds ? "rounds" : "epochs", Json());
  return (place - 1) % options_.lane_lines != 0 && Json(place) != last;
}

void Run::write_metrics(const Json& line) {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(!unlisted_in(line), "write_metrics: ", *unlisted_in(line),
                                   ": want those of run/files/metric_keys.cpp, got ", line.dump());
  if (!world_.leads()) return;
  if (is_left_out(line)) {
    if (events_.line_written) events_.line_written(line);
    return;
  }
  metrics_->add(line);
  if (!metrics_->trouble().empty() && !is_trouble_told_)
    warn(fmt::format("metrics.jsonl cannot be written ({}): training goes on, and lines wait in memory",
                     metrics_->trouble()));
  is_trouble_told_ = !metrics_->trouble().empty();
  curves_.add(line);
  if (events_.line_written) events_.line_written(line);
}

void Run::at_batch() {
  batches_ += 1;
  score_.reset();
  is_saved_ = false;
  bool is_due = false;
  if (world_.leads()) {
    if (pictures_ && curves_.is_open()) curves_.add(pictures_());
    pictures_ = {};
    tell_outcome();
    const double minutes = std::chrono::duration<double>(Clock::now() - last_save_).count() / 60;
    // Better late than in the way; but every batch means every batch.
    is_due = visit_ && minutes >= options_.checkpoint_minutes &&
             (options_.checkpoint_minutes == 0 || !writer_->is_busy());
  }
  if (!world_.is_alone()) {
    if (options_.checkpoint_minutes > 0 && batches_ % kBatchesBetweenAgreements != 0) return;
    // A signal is larger than "due".
    const int64_t agreed = world_.largest(pending_interrupt() != 0 ? 1 + pending_interrupt()
                                          : is_due                 ? 1
                                                                   : 0);
    if (agreed > 1) throw Interrupted(static_cast<int>(agreed - 1));
    is_due = agreed == 1;
  }
  if (is_due) save();
  if (world_.leads()) page_.now_and_then();
}

void Run::end_epoch(double score) {
  score_ = std::isfinite(score) ? std::optional(score) : std::nullopt;
  is_saved_ = false;
  if (world_.leads()) tell_outcome();
  if (says_rank_0(score_ && (!best_score_ || *score_ > *best_score_))) save();
}

void Run::save_last() {
  if (world_.leads()) tell_outcome();
  if (says_rank_0(!is_saved_ || !last_error_.empty())) save();
  is_trained_ = true;
}

void Run::save() {
  if (!world_.leads()) {
    StateArchive archive;
    visit_(archive);
    archive.gather(world_);
    is_saved_ = true;
    return;
  }
  const auto began = Clock::now();
  writer_->wait();
  tell_outcome();  // that of the save before, which would be forgotten
  const double waited_ms = std::chrono::duration<double, std::milli>(Clock::now() - began).count();
  curves_.flush();
  StateArchive archive;
  visit_(archive);
  archive.gather(world_);
  // Names are in the order of time.
  const std::string name = fmt::format("{:012}", batches_);
  Json manifest = manifest_head(job_);
  manifest.update(Json{{"batches", batches_},
                       {"score", score_ ? Json(*score_) : Json()},
                       {"seconds", seconds()},
                       {"metrics_bytes", metrics_->size_bytes()},
                       {"fingerprint", fingerprint()},
                       {"convolutions", choices_.made ? choices_.made() : Choices::Made{}},
                       {"state", archive.values()}});
  writer_->save({.name = name,
                 .tensors = archive.tensors(),
                 .manifest = std::move(manifest),
                 // Lines that a checkpoint counts on are on the disk before it is.
                 .before_write = [this] { metrics_->flush(); },
                 .after_write = [this, name, score = score_] { kept_.add(name, score); },
                 .waited_ms = waited_ms});
  if (score_ && (!best_score_ || *score_ > *best_score_)) best_score_ = score_;
  is_saved_ = true;
  last_save_ = Clock::now();
}

void Run::tell_outcome() {
  const std::optional<SavedCheckpoint> outcome = writer_->take_outcome();
  if (!outcome) return;
  last_error_ = outcome->error;
  if (!outcome->error.empty()) {
    best_score_ = kept_.best_score();  // a best one that is not there is none
    warn(fmt::format("checkpoint {} was not written: {}; training goes on", outcome->name, outcome->error));
  } else if (events_.checkpoint_saved) {
    events_.checkpoint_saved(*outcome);
  }
}

void Run::guard(const std::function<void()>& loop) {
  try {
    loop();
  } catch (const Interrupted&) {
    if (visit_ && !is_trained_) save();
    if (!world_.leads()) throw;
    writer_->wait();
    tell_outcome();
    if (!checkpoints_.names().empty() && events_.stopped) events_.stopped(path_);
    throw;
  }
}

void Run::finish() {
  if (!world_.leads()) return;
  writer_->wait();
  tell_outcome();
  metrics_->flush();
  page_.wait();
  folder_->unlock();  // so that the page says how it ended
  if (const std::string error = page_.write(); !error.empty()) warn(error);
  if (!last_error_.empty())
    fail("the run ended, but its last checkpoint was not written: {}; results are in '{}'", last_error_,
         path_.string());
}

void Run::warn(const std::string& text) const {
  if (events_.warned) events_.warned(text);
}

void Run::note(const std::string& text) const {
  if (events_.noted) events_.noted(text);
}

}  // namespace espalier::run
