#include "espalier/watch/page/payoff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "espalier/core/interval.h"
#include "espalier/watch/page/selection.h"
#include "espalier/watch/page/sentence.h"
#include "espalier/watch/page/short_number.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostRows = 256;

struct LaneEnd {
  const LaneLine* last = nullptr;  // of the last validation: accuracy and seeds of one moment
  double accuracy = kMissing;
  double parameters = kMissing;
  int64_t kept = 0;
  bool is_on_trial = false;  // kept none, but feels one that may yet be kept or removed
  // What the counterfactual last said of the seed in a slot; NaN: never asked.
  std::map<uint32_t, double> contributions;
};

// The round whose networks are told of: the last that is over. 0: the job has no rounds.
int64_t round_told_of(const RunRecord& run) {
  if (run.lanes.front().round == 0) return 0;
  return run.rounds.empty() ? -1 : run.rounds.back().round;
}

std::map<int64_t, LaneEnd> lane_ends(const RunRecord& run, int64_t round) {
  Lines lines;
  for (const LaneLine& line : run.lanes)
    if (line.round == round) lines.push_back(&line);
  std::map<int64_t, LaneEnd> ends;
  for (const auto& [lane, line] : last_scored_lines(lines)) ends[lane].last = line;
  for (const LaneLine* line : lines) {
    LaneEnd& end = ends[line->lane];
    if (line->step > end.last->step) continue;
    for (const SlotLine& slot : line->slots) {
      if (slot.stage == SeedStage::kGerminated) end.contributions.erase(slot.slot);
      if (std::isfinite(slot.contribution_points)) end.contributions[slot.slot] = slot.contribution_points;
    }
  }
  for (auto& [lane, end] : ends) {
    end.accuracy = end.last->validation_accuracy;
    end.parameters = end.last->parameters;
    end.kept = std::ranges::count(end.last->slots, SeedStage::kFossilized, &SlotLine::stage);
  }
  for (const LaneResult& result : run.lane_results) {
    const auto found = ends.find(result.lane);
    if (found == ends.end()) continue;
    found->second.accuracy = result.test_accuracy;
    if (std::isfinite(result.parameters)) found->second.parameters = result.parameters;
    if (std::isfinite(result.seeds_kept)) found->second.kept = static_cast<int64_t>(result.seeds_kept);
  }
  for (auto& [lane, end] : ends)
    end.is_on_trial = end.kept == 0 && std::ranges::any_of(end.last->slots, [](const SlotLine& slot) {
                        return slot.stage == SeedStage::kBlending || slot.stage == SeedStage::kHolding;
                      });
  std::erase_if(ends, [](const auto& each) { return std::isnan(each.second.accuracy); });
  return ends;
}

struct Group {
  std::vector<double> accuracies;
  std::vector<double> parameters;

  int64_t size() const { return std::ssize(accuracies); }
  // "53.2 % test accuracy with 12.3 thousand parameters (6 lanes)"
  std::string words(const char* measure) const {
    std::string text = fmt::format("{} {}", percent_words(interval_of(accuracies).mean), measure);
    if (!parameters.empty()) text += " with " + parameters_words(interval_of(parameters).mean);
    return fmt::format("{} on average ({})", text, count_words(size(), "lane", "lanes"));
  }
  ordered_json data() const {
    if (accuracies.empty()) return nullptr;
    const Interval interval = interval_of(accuracies);
    return {{"lanes", size()},
            {"mean", short_number(interval.mean)},
            {"half_width", size() > 1 ? short_number(interval.half_width) : ordered_json()},
            {"parameters", parameters.empty() ? ordered_json() : short_number(interval_of(parameters).mean)}};
  }
};

std::string verdict_words(const Interval& difference) {
  switch (verdict_on(difference)) {
    case Comparison::kBetter:
      return "growing paid in this run";
    case Comparison::kWorse:
      return "growing cost accuracy in this run";
    case Comparison::kUndecided:
      return "too close to tell from chance";
  }
  return "";
}

// Counts lanes that end with a seed on trial: they are neither the one nor the other.
std::string words_of_others(const Group& on_trial) {
  if (on_trial.size() == 0) return "";
  return fmt::format(" Left out: {} whose seeds were still on trial at {}.",
                     count_words(on_trial.size(), "lane", "lanes"),
                     percent_words(interval_of(on_trial.accuracies).mean));
}

std::string comparison_of(const Group& grown, const Group& bare, const char* measure) {
  if (grown.size() == 0 && bare.size() == 0) return "No lane kept a seed.";
  if (grown.size() == 0) return fmt::format("No lane kept a seed: {}.", bare.words(measure));
  if (bare.size() == 0)
    return fmt::format(
        "Lanes that kept seeds: {}; lanes that kept none: there are none to compare with, but `espalier "
        "evaluate` plays the same episodes with and without growth.",
        grown.words(measure));
  const std::string both = fmt::format("Lanes that kept seeds: {}; lanes that kept none: {}.",
                                       grown.words(measure), bare.words(measure));
  const Interval difference = difference_of_means(grown.accuracies, bare.accuracies);
  if (grown.size() < 2 || bare.size() < 2)
    return fmt::format("{} The difference is {} points; of a single lane there is no interval.", both,
                       points_words(difference.mean));
  return fmt::format("{} The difference is {}: {}.", both, difference_words(difference),
                     verdict_words(difference));
}

// [slot, blueprint, stage, contribution in points] of every seed that is alive at the end.
ordered_json seeds_of(const LaneEnd& end, const RunRecord& run) {
  ordered_json seeds = ordered_json::array();
  for (const SlotLine& slot : end.last->slots) {
    if (!holds_seed(slot.stage)) continue;
    const auto found = end.contributions.find(slot.slot);
    seeds.push_back({run.slots[slot.slot], slot.blueprint ? run.blueprints[*slot.blueprint] : "?",
                     static_cast<int>(slot.stage),
                     found == end.contributions.end() ? ordered_json() : short_number(found->second)});
  }
  return seeds;
}

}  // namespace

ordered_json payoff_of(const RunRecord& run) {
  if (run.lanes.empty()) return nullptr;
  const int64_t round = round_told_of(run);
  const std::map<int64_t, LaneEnd> ends = lane_ends(run, round);
  if (ends.empty()) return nullptr;
  Group grown, bare, on_trial;
  std::vector<std::pair<int64_t, const LaneEnd*>> best_first;
  for (const auto& [lane, end] : ends) {
    Group& group = end.kept > 0 ? grown : end.is_on_trial ? on_trial : bare;
    group.accuracies.push_back(end.accuracy);
    if (std::isfinite(end.parameters)) group.parameters.push_back(end.parameters);
    best_first.emplace_back(lane, &end);
  }
  std::ranges::stable_sort(best_first, std::greater{},
                           [](const auto& each) { return each.second->accuracy; });
  const char* const measure = run.lane_results.empty() ? "validation accuracy" : "test accuracy";
  ordered_json data{{"measure", measure},
                    {"round", round},
                    {"sentence", comparison_of(grown, bare, measure) + words_of_others(on_trial)},
                    {"grown", grown.data()},
                    {"bare", bare.data()},
                    {"on_trial", on_trial.data()},
                    {"difference", nullptr},
                    {"all_lanes", ends.size()},
                    {"lanes", ordered_json::array()}};
  if (grown.size() > 1 && bare.size() > 1) {
    const Interval difference = difference_of_means(grown.accuracies, bare.accuracies);
    data["difference"] = {short_number(difference.mean), short_number(difference.half_width)};
  }
  for (const auto& [lane, end] : best_first) {
    if (data["lanes"].size() == kMostRows) break;
    data["lanes"].push_back({{"lane", lane},
                             {"accuracy", short_number(end->accuracy)},
                             {"parameters", short_number(end->parameters)},
                             {"kept", end->kept},
                             {"group", end->kept > 0      ? "grown"
                                       : end->is_on_trial ? "on_trial"
                                                          : "bare"},
                             {"seeds", seeds_of(*end, run)}});
  }
  return data;
}

}  // namespace espalier::watch
