// A run: the directory that holds its results, and how it goes on after it was stopped. Every training job
// has one.
//
//   Run run(options, "population", to_json(options));          // before data is loaded
//   ...
//   run.begin({environment, dataset_facts(*dataset)}, [&](StateArchive& archive) { ... });
//   run.guard([&] {
//     while (...) { train; run.write_metrics(line); }          // trainers call run.at_batch()
//     run.save_last();
//     test; run.write_metrics(result);                         // again, where a finished run is resumed
//   });
//   run.finish();
//
// Kept true:
// - One process works in a directory; nothing is written outside it.
// - metrics.jsonl and the state that begin() loads belong together: lines behind the checkpoint are cut off,
//   and come again. So a run that was killed at any moment and resumed leaves the files of one that was not.
// - A checkpoint is loaded only for the configuration, data and number of threads that it is of.
// - What cannot be written (a full disk) is told and tried again; finish() fails where results are lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "espalier/core/checkpoint_folder.h"
#include "espalier/core/lock_file.h"
#include "espalier/data/resident.h"
#include "espalier/train/batch_picture.h"
#include "espalier/train/checkpoint_writer.h"
#include "espalier/train/metrics_file.h"
#include "espalier/train/run_options.h"
#include "espalier/train/state_archive.h"
#include "espalier/watch/event_scalars.h"

namespace espalier::train {

// What a run tells while it works. All may be empty.
struct RunEvents {
  std::function<void(const nlohmann::ordered_json&)> line_written;
  std::function<void(const std::string& checkpoint)> resumed;
  std::function<void(const SavedCheckpoint&)> checkpoint_saved;
  std::function<void(const std::string&)> warned;
  std::function<void(const std::filesystem::path& run)> stopped;  // by a signal, its state saved
};

class Run {
 public:
  using Visit = std::function<void(StateArchive&)>;

  // Takes the directory, and finds the checkpoint to go on from, if there is one. Nothing is thrown away, nor
  // stays behind, before begin(). config: of the job, by the names of flags.
  Run(const RunOptions& options, std::string job, nlohmann::ordered_json config, RunEvents events = {});
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const std::filesystem::path& path() const { return path_; }

  struct Facts {
    nlohmann::ordered_json environment;
    nlohmann::ordered_json dataset;  // dataset_facts()
    // Of the first batch, asked for after it; may be empty.
    std::function<std::vector<BatchPicture>()> pictures = {};
  };
  // Loads the checkpoint, or begins anew. visit: names all that the job is, and outlives the run.
  void begin(const Facts& facts, Visit visit);
  bool is_resumed() const { return checkpoint_ != nullptr; }

  // A file beside the others, there as a whole or not at all.
  void write_file(const std::string& name, const std::string& text) const;
  void write_metrics(const nlohmann::ordered_json& line);

  // Between two batches: saves a checkpoint where one is due.
  void at_batch();
  // When all is trained, before what is only looked at (a test may load another state): the last checkpoint.
  void save_last();
  // How good the state now is: the best one's checkpoint is kept.
  void set_score(double score) { score_ = score; }

  // Runs the job's loop; when a signal ends it, saves a checkpoint first.
  void guard(const std::function<void()>& loop);
  // At the end: all is on the disk. Fails where results are lost.
  void finish();

 private:
  void take_over();
  void begin_anew();
  std::shared_ptr<const Checkpoint> newest_checkpoint();
  std::shared_ptr<const Checkpoint> checkpoint_to_resume();
  void check_fingerprint(const nlohmann::ordered_json& old_one, const nlohmann::ordered_json& new_one) const;
  nlohmann::ordered_json fingerprint() const;
  void open_events();
  // TensorBoard's files are a view of the metrics: what cannot be written there is told, and given up.
  void write_events(const std::function<void()>& write);
  void save();  // the state now and the lines so far, written in the background
  void tell_outcome();
  void report_now_and_then();
  void keep_the_newest_and_the_best();
  void warn(const std::string& text) const;

  RunOptions options_;
  std::string job_;
  nlohmann::ordered_json config_;
  RunEvents events_;
  std::filesystem::path path_;
  bool is_new_;  // the directory was not there
  std::optional<LockFile> lock_;
  CheckpointFolder checkpoints_;
  std::shared_ptr<const Checkpoint> checkpoint_;  // that was, or will be loaded
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<watch::EventFile> event_file_;  // none before begin(), or after it failed
  std::unique_ptr<watch::MetricEvents> metric_events_;
  std::function<std::vector<BatchPicture>()> pictures_;
  nlohmann::ordered_json dataset_;
  Visit visit_;
  int64_t batches_ = 0;  // of the whole run
  double score_ = -1;
  std::chrono::steady_clock::time_point last_save_;
  std::chrono::steady_clock::time_point last_report_;
  std::future<std::string> report_;  // being made; what went wrong
  std::string last_error_;           // of the newest checkpoint; empty: it is on the disk
  bool is_trouble_told_ = false;     // that metrics wait
  bool has_begun_ = false;           // else nothing stays of it
  bool is_trained_ = false;          // the last checkpoint was saved
  std::map<std::string, double>
      scores_;  // of the checkpoints that are there; touched by one thread at a time
  std::unique_ptr<CheckpointWriter> writer_;  // last: its thread uses the others
};

// What tells one dataset from another: sizes, class names, means and deviations, a checksum of all labels.
nlohmann::ordered_json dataset_facts(const data::ResidentDataset& dataset);

}  // namespace espalier::train
