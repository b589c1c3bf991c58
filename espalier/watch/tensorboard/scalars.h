// Lines of metrics.jsonl as curves and histograms of TensorBoard.
//
// Which keys of which lines become which tags is the table of metric_keys.h: `losses/policy_loss` of a round,
// `validation_accuracy/all` of an epoch of any job, `share/stream_<name>` of a stream,
// `validation_accuracy/lane_<number>` of a lane, `result/test_accuracy` of a result, which stands at the last
// step. All lanes together: the histogram `gradient_norm/lanes`. The custom scalars' layout puts a measure's
// curves, those of all lanes and their mean, on one pair of axes.
//
// Steps are epochs; for PPO those of all episodes one after the other, so that round r stands at
// r * episode_length, and one session start at a resumed step holds for every tag (event_file.h).
// Values that are no numbers (null: not finite), keys and kinds that are not known here are passed over.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "espalier/watch/tensorboard/event_file.h"

namespace espalier::watch {

// Lanes with curves of their own: TensorBoard draws a chart a tag, and grows slow with thousands of them. The
// histogram and the means have all lanes; so has report.html.
inline constexpr int64_t kLanesWithCurves = 16;

struct EventScalar {
  std::string tag;
  int64_t step = 0;
  double value = 0;

  bool operator==(const EventScalar&) const = default;
};

// Where a line stands; none for a line that names neither an epoch nor a round.
std::optional<int64_t> step_of(const nlohmann::ordered_json& line, int64_t episode_length);

// Its curves' points, in the order of the line, those of streams last.
std::vector<EventScalar> scalars_of(const nlohmann::ordered_json& line, int64_t step);

// Writes the lines of a run into a file. Each line's events are handed to the system when add() returns,
// apart from the histogram, for which the lanes of a step are collected until a line of another kind or step
// comes.
class MetricEvents {
 public:
  // `episode_length`: steps per round; 1 for jobs that have no rounds. The file must outlive this object.
  explicit MetricEvents(EventFile& file, int64_t episode_length = 1);

  void add(const nlohmann::ordered_json& line);

  // Before the first add() of a run that goes on: the session start. `last_line` is the last that was kept of
  // the lines with an epoch or a round; an empty object when none was.
  void resume_after(const nlohmann::ordered_json& last_line);

  // Writes the histogram of the lanes that came. To be called before a checkpoint, with all lanes of a step
  // given: a resumed run does not add their lines again.
  void flush();

 private:
  void collect(const nlohmann::ordered_json& line);

  EventFile& file_;
  int64_t episode_length_;
  int64_t last_step_ = 0;
  std::vector<double> gradient_norms_;  // those of the lanes at last_step_ that came so far
};

}  // namespace espalier::watch
