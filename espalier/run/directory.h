// A run: the directory that holds its results, and how it goes on after it was stopped. Every training job
// has one.
//
//   Run run(options, "population", to_json(options));          // before data is loaded
//   ...
//   run.begin({environment, dataset_facts(*dataset)}, [&](StateArchive& archive) { ... });
//   run.guard([&] {
//     while (...) { train; run.write_metrics(line); run.end_epoch(score); }  // trainers call run.at_batch()
//     run.save_last();
//     test; run.write_metrics(result);                         // again, where a finished run is resumed
//   });
//   run.finish();
//
// Kept true:
// - One process works in a directory; nothing is written outside it.
// - metrics.jsonl and the state that begin() loads belong together: lines behind the checkpoint are cut off,
//   and come again. So a run that was killed at any moment and resumed leaves the files of one that was not.
// - A checkpoint is loaded only for the configuration, data and number of threads that it was made with,
//   apart from what --allow-change names (fingerprint.h). config.json is what the run is now; what was
//   changed, and when, is in environment.json.
// - A checkpoint's score is that of the very state in it: those between two batches of an epoch have none.
//   The one with the best score is kept (kept_checkpoints.h).
// - What cannot be written (a full disk) is told and tried again; finish() fails where results are lost.
// - Several processes have one run: rank 0 has the directory and does all of the above; the others load from
//   what it read, give their part of every checkpoint, and write nothing. All of them make the same calls.
//   They are asked every so many batches whether a checkpoint is due or a signal came, and then do the same.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "espalier/ranks/world.h"
#include "espalier/run/archive.h"
#include "espalier/run/checkpoint_writer.h"
#include "espalier/run/config.h"
#include "espalier/run/event_view.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "espalier/run/files/metrics.h"
#include "espalier/run/kept_checkpoints.h"
#include "espalier/run/page_writer.h"
#include "espalier/run/taken_folder.h"

namespace espalier::run {

// What a run tells while it works. All may be empty.
struct RunEvents {
  std::function<void(const nlohmann::ordered_json&)> line_written;
  std::function<void(const std::string& checkpoint)> resumed;
  std::function<void(const SavedCheckpoint&)> checkpoint_saved;
  std::function<void(const std::string&)> warned;
  std::function<void(const std::string&)> noted;  // one sentence that is worth a line, and no trouble
  std::function<void(const std::filesystem::path& run)> stopped;  // by a signal, its state saved
};

class Run {
 public:
  using Visit = std::function<void(StateArchive&)>;

  // Takes the directory, and finds the checkpoint to go on from, if there is one. Nothing is thrown away, nor
  // stays behind, before begin(). config: of the job, by the names of flags.
  Run(const RunConfig& options, std::string job, nlohmann::ordered_json config, RunEvents events = {},
      ranks::World& world = ranks::World::alone());
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // What the run took so far, its earlier sessions included.
  double seconds() const;

  // What a job chose by timing, and a resumed one must choose alike: saved beside its state.
  struct Choices {
    using Made = std::map<std::string, std::string>;
    std::function<Made()> made;
    std::function<void(const Made&)> repeat;
  };
  // TensorBoard's files.
  enum class Curves : uint8_t { kWritten, kNone };
  struct Facts {
    nlohmann::ordered_json environment;
    nlohmann::ordered_json dataset;  // what tells it from another one
    // Shows the first batch, asked for after it; may be empty.
    EventView::Pictures pictures = {};
    Choices choices = {};  // may be empty
    Curves curves = Curves::kWritten;
  };
  // Loads the checkpoint, or starts afresh. visit: names all of the job's state, and outlives the run.
  void begin(const Facts& facts, Visit visit);
  bool is_resumed() const { return checkpoint_ != nullptr; }
  // An earlier start of this very run was killed before its first checkpoint, or is gone on with: what it
  // left outside its directory is this run's own. Rank 0 knows.
  bool has_begun_before() const { return has_begun_before_; }

  // A file beside the others, there as a whole or not at all.
  void write_file(const std::string& name, const std::string& text) const;
  // A line of a single lane may be left out of the files (RunConfig::lane_lines); events get all of them.
  void write_metrics(const nlohmann::ordered_json& line);

  // Between two batches: saves a checkpoint where one is due. Several processes: also ends all of them where
  // one was asked to.
  void at_batch();
  // Also between two batches: saves a checkpoint, whatever the clock says.
  void save_now() { save(); }
  // When all is trained, before what is only looked at (a test may load another state): the last checkpoint.
  void save_last();
  // Between two epochs, after all lines of the one that ended: how good the state is that it left. A state
  // that is better than all before gets a checkpoint of its own, which is kept.
  void end_epoch(double score);

  // Runs the job's loop; when a signal ends it, saves a checkpoint first.
  void guard(const std::function<void()>& loop);
  // At the end: all is on the disk. Fails where results are lost.
  void finish();

 private:
  void open_directory();
  void share_the_start();
  void check_alike(const nlohmann::ordered_json& own);
  void restore();
  bool says_rank_0(bool own);
  void take_over();
  void start_new();
  // noted: the newest value of keys that an earlier start was allowed to change: those may differ too.
  void check_same(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now,
                  const nlohmann::ordered_json& noted = nlohmann::ordered_json::object()) const;
  nlohmann::ordered_json fingerprint() const;
  // Makes config.json what the run is now. written: what it holds.
  void renew_config(nlohmann::ordered_json written) const;
  nlohmann::ordered_json load(const nlohmann::ordered_json& config, const nlohmann::ordered_json& noted);
  void tell_finished() const;
  void open_curves();
  void save();  // the state now and the lines so far, written in the background
  void tell_outcome();
  void warn(const std::string& text) const;
  void note(const std::string& text) const;
  bool is_left_out(const nlohmann::ordered_json& line) const;

  RunConfig options_;
  std::string job_;
  nlohmann::ordered_json config_;
  RunEvents events_;
  ranks::World& world_;
  std::filesystem::path path_;
  std::optional<TakenFolder> folder_;  // gone with all that was made in it, unless the run begins
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  double earlier_seconds_ = 0;  // in the sessions before this one
  CheckpointFolder checkpoints_;
  KeptCheckpoints kept_;
  std::shared_ptr<const Checkpoint> checkpoint_;  // that was, or will be loaded
  std::unique_ptr<MetricsFile> metrics_;
  EventView curves_;
  PageWriter page_;
  EventView::Pictures pictures_;
  nlohmann::ordered_json dataset_;
  Choices choices_;
  Visit visit_;
  int64_t batches_ = 0;               // in the whole run
  std::optional<double> score_;       // for the state now; none within an epoch
  std::optional<double> best_score_;  // among the checkpoints, the one that is being written included
  std::chrono::steady_clock::time_point last_save_;
  std::string last_error_;                    // why the newest checkpoint failed; empty: it is on the disk
  bool has_begun_before_ = false;             // in an earlier start
  bool is_trouble_told_ = false;              // that metrics wait
  bool is_saved_ = false;                     // the state now is in a checkpoint, or on its way there
  bool is_trained_ = false;                   // the last checkpoint was saved
  std::unique_ptr<CheckpointWriter> writer_;  // last: its thread uses the others
};

}  // namespace espalier::run
