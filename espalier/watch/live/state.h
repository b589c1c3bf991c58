// What a run's metrics lines say about now: its rows (lanes, or streams of a linet), how far it is, how fast.
//
// Kept true: it reads the lines that metrics.jsonl holds and nothing else; kinds and keys that it does not
// know, values of another type and values that are not finite are passed over, never shown as a number.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/watch/terminal/sparkline.h"

namespace espalier::watch {

struct LiveSeed {
  std::string slot;
  std::string blueprint;  // empty: no seed is there any more
  std::string stage;      // as metrics lines spell it: "TRAINING"
  std::optional<double> amplitude;
};

struct LiveRow {
  std::string name;
  History accuracies;  // on validation, one per epoch or step; this episode's where there are rounds
  std::optional<double> accuracy;
  std::optional<double> loss;
  std::optional<double> train_accuracy;
  std::optional<double> gradient_norm;
  std::optional<double> parameters;
  std::optional<double> reward;
  std::optional<double> share;  // the integrated path's
  std::vector<LiveSeed> seeds;
  std::string note;  // "retired: loss jumped", "frozen"
  bool is_retired = false;
};

enum class RunShape : uint8_t { kEpochs, kRounds };

// What is known before the first line.
struct RunExtent {
  RunShape shape = RunShape::kEpochs;
  int64_t total = 0;           // epochs or rounds
  int64_t steps_a_round = 0;   // where there are rounds
  int64_t samples_a_step = 0;  // that all rows train on in an epoch or step; 0: not known
};

class LiveState {
 public:
  // seconds: of any clock that only goes forward, as for all below.
  LiveState(RunExtent extent, double seconds);

  void add(const nlohmann::ordered_json& line, double seconds);

  const RunExtent& extent() const { return extent_; }
  const std::vector<LiveRow>& rows() const { return rows_; }
  bool has_streams() const { return has_streams_; }
  bool is_finished() const { return is_finished_; }
  int64_t epoch() const { return epoch_; }  // or step
  int64_t round() const { return round_; }

  // Over all rows: of the last epoch or round, or the mean of the rows where no line has said it yet.
  std::optional<double> accuracy() const;
  std::optional<double> loss() const { return loss_; }
  const History& accuracies() const { return accuracies_; }  // epochs
  const History& returns() const { return returns_; }        // rounds
  std::optional<double> last_return() const { return last_return_; }
  std::optional<double> mean_reward() const;  // over the last step
  // The policy's, of the last update.
  std::optional<double> entropy() const { return entropy_; }  // a share of the log of the legal choices
  std::optional<double> approx_kl() const { return approx_kl_; }
  // How often each operation was chosen, WAIT included: in this round, or in the whole run so far.
  const std::array<int64_t, kNumSeedOps>& num_chosen() const { return num_chosen_; }
  int64_t num_seeds() const;
  int64_t num_retired() const;

  // How much of the whole run, from 0 to 1; nothing where the total is not known.
  std::optional<double> share_done() const;
  std::optional<double> seconds_left(double seconds) const;
  // Epochs or steps, over the last few.
  std::optional<double> steps_a_second() const;

 private:
  void add_lane(const nlohmann::ordered_json& line);
  void add_epoch(const nlohmann::ordered_json& line);
  void add_round(const nlohmann::ordered_json& line);
  void move_to(int64_t round, int64_t epoch, double seconds);
  double position() const;  // in epochs or rounds
  LiveRow& row(const std::string& name);

  RunExtent extent_;
  std::vector<LiveRow> rows_;  // lanes by number, streams as the lines have them
  std::map<std::string, size_t> places_;
  bool has_streams_ = false;
  bool is_finished_ = false;
  int64_t epoch_ = 0;
  int64_t round_ = 0;
  std::optional<double> accuracy_;
  std::optional<double> loss_;
  std::optional<double> last_return_;
  std::optional<double> entropy_;
  std::optional<double> approx_kl_;
  std::array<int64_t, kNumSeedOps> num_chosen_{};
  History accuracies_;
  History returns_;
  double began_;
  std::optional<double> first_position_;  // before the first line: a run that goes on did not begin at 0
  double moved_;                          // when the last epoch or step ended
  std::deque<double> ends_;               // when the last epochs or steps ended
};

}  // namespace espalier::watch
