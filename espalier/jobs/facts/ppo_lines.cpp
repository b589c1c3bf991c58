#include "espalier/jobs/facts/ppo_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "espalier/run/files/metric_keys.h"

namespace espalier::jobs {
namespace {

using nlohmann::ordered_json;
using policy::Diagnostic;

template <class Value>
double mean_of(const std::vector<Value>& values) {
  double sum = 0;
  for (const Value& value : values) sum += static_cast<double>(value);
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace

PpoLines::PpoLines(const train::PopulationTrainer& environments, const train::PpoConfig& options)
    : epochs_(environments.population(0)),
      terms_(environments.reward_terms()),
      policy_rate_(options.policy.policy_rate) {}

ordered_json PpoLines::step_line(int64_t round, const train::EpochRecord& epoch,
                                 const train::LaneRecord& lane) const {
  ordered_json line{{"kind", name_of(run::LineKind::kLane)}, {"round", round}, {"step", epoch.epoch}};
  ordered_json rest = epochs_.lane_line(epoch, lane);
  rest.erase("epoch");
  line.update(rest);
  if (epoch.epoch == 1) return line;  // no decision before it
  line["reward"] = lane.reward.sum();
  for (size_t term = 0; term < terms_.size(); ++term)
    if (const double value = lane.reward.terms[term]; value != 0)
      line[fmt::format("reward_{}", terms_[term])] = value;
  return line;
}

ordered_json PpoLines::round_line(const train::RoundRecord& round) const {
  const train::EpisodeRecord& episode = round.episode;
  const auto lanes = static_cast<double>(episode.last.lanes.size());
  const double seconds = episode.seconds + round.update_seconds;
  ordered_json line{{"kind", name_of(run::LineKind::kRound)},
                    {"round", episode.round},
                    {"charts/episodic_return", episode.mean_return()},
                    {"charts/episodic_length", mean_of(episode.lengths)},
                    {"charts/SPS", lanes * static_cast<double>(episode.last.epoch) / seconds}};
  if (round.diagnostics) {
    line["charts/learning_rate"] = policy_rate_;
    for (size_t i = 0; i < round.diagnostics->size(); ++i)
      line[fmt::format("losses/{}", policy::kDiagnosticNames[i])] = (*round.diagnostics)[i];
    for (size_t head = 0; head < round.heads.size(); ++head)
      for (size_t i = 0; i < round.heads[head].size(); ++i)
        if (const std::optional<double>& value = round.heads[head][i])
          line[fmt::format("heads/{}/{}", policy::kHeadNames[head], policy::kHeadDiagnosticNames[i])] =
              *value;
  }
  for (size_t term = 0; term < terms_.size(); ++term) {
    double sum = 0;
    for (const std::vector<double>& per_lane : episode.terms) sum += per_lane[term];
    line[fmt::format("rewards/{}", terms_[term])] = sum / lanes;
  }
  const auto accuracy = [](const train::LaneRecord& lane) { return lane.validated.accuracy; };
  line["lanes/validation_accuracy"] = episode.mean_accuracy();
  line["lanes/best_validation_accuracy"] =
      accuracy(*std::ranges::max_element(episode.last.lanes, {}, accuracy));
  line["lanes/lost"] = episode.num_lost();
  line["growth/seeds_kept"] = mean_of(episode.seeds_kept);
  line["growth/added_parameters"] = mean_of(episode.added);
  line["time/episode_seconds"] = episode.seconds;
  line["time/update_seconds"] = round.update_seconds;
  for (size_t part = 0; part < train::kNumStepParts; ++part)
    if (const auto ms = episode.times.mean_ms(static_cast<train::StepPart>(part)))
      line[fmt::format("time/{}_ms", train::kStepPartNames[part])] = *ms;
  line["time/captures"] = episode.graphs.captures;
  line["time/capture_seconds"] = episode.graphs.capture_seconds;
  line["time/eager_runs"] = episode.graphs.eager;
  line["time/rank_bytes"] = episode.bytes_between_ranks;
  return line;
}

}  // namespace espalier::jobs
