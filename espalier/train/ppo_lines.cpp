#include "espalier/train/ppo_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace espalier::train {
namespace {

using nlohmann::ordered_json;
using policy::Diagnostic;

template <class Value>
double mean_of(const std::vector<Value>& values) {
  double sum = 0;
  for (const Value& value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double sum_of(const RewardTerms& terms) {
  double sum = 0;
  for (const double term : terms) sum += term;
  return sum;
}

}  // namespace

PpoLines::PpoLines(const grow::Population& population, const PpoJobOptions& options)
    : epochs_(population), policy_rate_(options.policy.policy_rate) {}

ordered_json PpoLines::of_step(int64_t round, const EpochRecord& epoch, const LaneRecord& lane,
                               const RewardTerms& reward) const {
  ordered_json line{{"kind", "lane"}, {"round", round}, {"step", epoch.epoch}};
  ordered_json rest = epochs_.of_lane(epoch, lane);
  rest.erase("epoch");
  line.update(rest);
  if (epoch.epoch == 1) return line;  // no decision before it
  line["reward"] = sum_of(reward);
  for (size_t term = 0; term < reward.size(); ++term)
    if (reward[term] != 0) line[fmt::format("reward_{}", policy::kRewardTermNames[term])] = reward[term];
  return line;
}

ordered_json PpoLines::of_round(const RoundRecord& round) const {
  const EpisodeRecord& episode = round.episode;
  const auto lanes = static_cast<double>(episode.last.lanes.size());
  const double seconds = episode.seconds + round.update_seconds;
  ordered_json line{{"kind", "round"},
                    {"round", episode.round},
                    {"charts/episodic_return", episode.mean_return()},
                    {"charts/episodic_length", mean_of(episode.lengths)},
                    {"charts/SPS", lanes * static_cast<double>(episode.last.epoch) / seconds}};
  if (round.diagnostics) {
    line["charts/learning_rate"] = policy_rate_;
    for (size_t i = 0; i < round.diagnostics->size(); ++i)
      line[fmt::format("losses/{}", policy::kDiagnosticNames[i])] = (*round.diagnostics)[i];
  }
  for (size_t term = 0; term < policy::kNumRewardTerms; ++term) {
    double sum = 0;
    for (const RewardTerms& of_lane : episode.terms) sum += of_lane[term];
    line[fmt::format("rewards/{}", policy::kRewardTermNames[term])] = sum / lanes;
  }
  const auto accuracy = [](const LaneRecord& lane) { return lane.validated.accuracy; };
  line["lanes/validation_accuracy"] = episode.mean_accuracy();
  line["lanes/best_validation_accuracy"] =
      accuracy(*std::ranges::max_element(episode.last.lanes, {}, accuracy));
  line["lanes/lost"] = episode.num_lost();
  line["growth/seeds_kept"] = mean_of(episode.seeds_kept);
  line["growth/added_parameters"] = mean_of(episode.added);
  line["time/episode_seconds"] = episode.seconds;
  line["time/update_seconds"] = round.update_seconds;
  for (size_t part = 0; part < kNumStepParts; ++part)
    if (const auto ms = episode.times.mean_ms(static_cast<StepPart>(part)))
      line[fmt::format("time/{}_ms", kStepPartNames[part])] = *ms;
  line["time/captures"] = episode.num_captures;
  line["time/capture_seconds"] = episode.capture_seconds;
  return line;
}

}  // namespace espalier::train
