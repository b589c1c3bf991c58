#include "espalier/watch/page/data.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

#include "espalier/run/files/metric_keys.h"
#include "espalier/watch/lines/thinning.h"
#include "espalier/watch/page/choices.h"
#include "espalier/watch/page/collapses.h"
#include "espalier/watch/page/contributions.h"
#include "espalier/watch/page/evaluation.h"
#include "espalier/watch/page/frontier.h"
#include "espalier/watch/page/growth_rows.h"
#include "espalier/watch/page/payoff.h"
#include "espalier/watch/page/selection.h"
#include "espalier/watch/page/short_number.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostPoints = 400;  // per curve: more than a chart has pixels to tell apart
constexpr size_t kFewestPoints = 40;
constexpr size_t kPointBudget = 200000;  // all curves together: about two megabytes
constexpr size_t kMostLanes = 256;
constexpr size_t kMostRounds = 200;
constexpr size_t kMostSeries = 64;
constexpr size_t kMostStreams = 16;
constexpr size_t kMostClasses = 100;
constexpr size_t kMostMistakes = 10;

bool is_on_page(run::LineKind line, const std::string& key) {
  const run::MetricKey* const found = run::find_metric_key(line, key);
  return found != nullptr && found->on_page == run::OnPage::kCurve;
}

// Numbers of a lane that the page draws.
const std::vector<LaneNumber>& lane_curves() {
  static const std::vector<LaneNumber> curves = [] {
    std::vector<LaneNumber> drawn;
    std::ranges::copy_if(kLaneNumbers, std::back_inserter(drawn),
                         [](const LaneNumber& each) { return is_on_page(run::LineKind::kLane, each.key); });
    return drawn;
  }();
  return curves;
}

ordered_json numbers_json(const Numbers& numbers) {
  ordered_json object = ordered_json::object();
  for (const auto& [key, value] : numbers)
    if (object.size() < kMostSeries) object[key] = short_number(value);
  return object;
}

// Series over one x, named, each with its values.
template <class Line>
ordered_json series_of(const std::vector<Line>& lines, int64_t Line::*x, const std::set<std::string>& keys) {
  std::vector<int64_t> places;
  for (const Line& line : lines) places.push_back(line.*x);
  const Thinning thinning(places.size(), kMostPoints);
  ordered_json series{{"x", thinning.places(places)}, {"values", ordered_json::object()}};
  for (const std::string& key : keys) {
    if (series["values"].size() >= kMostSeries) break;
    std::vector<double> values;
    for (const Line& line : lines) values.push_back(number_in(line.numbers, key));
    if (std::ranges::all_of(values, [](double value) { return std::isnan(value); })) continue;
    series["values"][key] = short_numbers(thinning.values(values));
  }
  return series;
}

ordered_json epoch_series(const RunRecord& run) {
  std::set<std::string> keys = run::keys_on_page(run::LineKind::kEpochOfMany);
  keys.merge(run::keys_on_page(run::LineKind::kEpochOfOne));
  return series_of(run.epochs, &EpochLine::epoch, keys);
}

ordered_json round_series(const RunRecord& run) {
  std::set<std::string> keys;
  for (const RoundLine& line : run.rounds)
    for (const auto& [key, value] : line.numbers)
      if (is_on_page(run::LineKind::kRound, key) && keys.size() < kMostSeries) keys.insert(key);
  return series_of(run.rounds, &RoundLine::round, keys);
}

ordered_json stream_series(const RunRecord& run) {
  std::set<std::string> names;
  for (const EpochLine& line : run.epochs)
    for (const auto& [name, values] : line.streams)
      if (names.size() < kMostStreams) names.insert(name);
  ordered_json streams = ordered_json::object();
  for (const std::string& name : names) {
    std::vector<EpochLine> own;
    for (const EpochLine& line : run.epochs) {
      const auto found = line.streams.find(name);
      own.push_back(
          {.epoch = line.epoch, .numbers = found == line.streams.end() ? Numbers{} : found->second});
    }
    streams[name] = series_of(own, &EpochLine::epoch, run::keys_on_page(run::LineKind::kEpochStream));
  }
  return streams;
}

Lines all_lines(const RunRecord& run) {
  Lines lines;
  for (const LaneLine& line : run.lanes) lines.push_back(&line);
  return lines;
}

// The lines of the lanes by round; jobs without rounds have one, 0.
std::map<int64_t, Lines> lines_by_round(const RunRecord& run) {
  std::map<int64_t, Lines> rounds;
  for (const LaneLine& line : run.lanes) rounds[line.round].push_back(&line);
  return rounds;
}

const LaneLine* best_of(const std::map<int64_t, const LaneLine*>& scored) {
  const LaneLine* best = nullptr;
  for (const auto& [lane, line] : scored)
    if (!std::isnan(line->validation_accuracy) &&
        (best == nullptr || line->validation_accuracy > best->validation_accuracy))
      best = line;
  return best;
}

// All lanes over one round, or over the whole run.
class RoundDetail {
 public:
  RoundDetail(int64_t round, const Lines& lines)
      : round_(round), lines_(lines), last_(last_lines(lines)), scored_(last_scored_lines(lines)) {
    std::set<int64_t> steps;
    for (const LaneLine* line : lines) {
      steps.insert(line->step);
      by_lane_[line->lane].push_back(line);
    }
    steps_.assign(steps.begin(), steps.end());
  }

  ordered_json data(const RunRecord& run, size_t point_budget) const {
    const std::vector<int64_t> lanes = shown_lanes();
    const size_t per_curve = point_budget / (lane_curves().size() * std::max<size_t>(1, lanes.size()));
    const Thinning thinning(steps_.size(), std::clamp(per_curve, kFewestPoints, kMostPoints));
    const LaneLine* best = best_of(scored_);
    ordered_json detail{{"round", round_},
                        {"x", thinning.places(steps_)},
                        {"thinned", thinning.is_thinned()},
                        {"all_lanes", last_.size()},
                        {"best_lane", best == nullptr ? ordered_json() : ordered_json(best->lane)},
                        {"lanes", lanes},
                        {"curves", ordered_json::object()},
                        {"mean", ordered_json::object()},
                        {"last", ordered_json::object()}};
    for (const auto& [name, member] : lane_curves()) {
      ordered_json curves = ordered_json::array(), last = ordered_json::array();
      for (const int64_t lane : lanes) {
        curves.push_back(short_numbers(thinning.values(curve(lane, member))));
        const bool is_scored =
            member == &LaneLine::validation_loss || member == &LaneLine::validation_accuracy;
        last.push_back(short_number((is_scored ? scored_ : last_).at(lane)->*member));
      }
      detail["curves"][name] = std::move(curves);
      detail["last"][name] = std::move(last);
      detail["mean"][name] = short_numbers(thinning.values(mean(member)));
    }
    detail["growth"] = growth_rows(run, lines_, lanes);
    detail["contributions"] = contributions_of(run, lines_, lanes);
    detail["choices"] = choices_of(run, lines_, ChoicesBy::kStep);
    return detail;
  }

 private:
  size_t place_of(int64_t step) const {
    return static_cast<size_t>(std::ranges::lower_bound(steps_, step) - steps_.begin());
  }

  std::vector<int64_t> shown_lanes() const {
    std::vector<int64_t> all;
    for (const auto& [lane, line] : last_) all.push_back(lane);
    std::set<int64_t> chosen;
    if (const LaneLine* best = best_of(scored_)) chosen.insert(best->lane);
    for (const size_t i : some_of(all.size(), kMostLanes)) chosen.insert(all[i]);
    return {chosen.begin(), chosen.end()};
  }

  std::vector<double> curve(int64_t lane, double LaneLine::*member) const {
    std::vector<double> values(steps_.size(), kMissing);
    for (const LaneLine* line : by_lane_.at(lane)) values[place_of(line->step)] = line->*member;
    return values;
  }

  std::vector<double> mean(double LaneLine::*member) const {
    std::vector<double> sums(steps_.size(), 0), counts(steps_.size(), 0);
    for (const LaneLine* line : lines_) {
      if (std::isnan(line->*member)) continue;
      sums[place_of(line->step)] += line->*member;
      counts[place_of(line->step)] += 1;
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = counts[i] > 0 ? sums[i] / counts[i] : kMissing;
    return sums;
  }

  int64_t round_;
  const Lines& lines_;
  std::map<int64_t, Lines> by_lane_;
  std::map<int64_t, const LaneLine*> last_;
  std::map<int64_t, const LaneLine*> scored_;
  std::vector<int64_t> steps_;
};

// The last round, and as many others as the budget of points allows, evenly.
ordered_json details_of(const std::map<int64_t, Lines>& rounds, const RunRecord& run) {
  ordered_json details = ordered_json::array();
  if (rounds.empty()) return details;
  size_t longest = 1;
  for (const auto& [round, lines] : rounds) longest = std::max(longest, lines.size());
  const size_t fitting = kPointBudget / (longest * lane_curves().size());
  std::vector<int64_t> numbers;
  for (const auto& [round, lines] : rounds) numbers.push_back(round);
  const std::vector<size_t> chosen = some_of(numbers.size(), std::clamp<size_t>(fitting, 1, kMostRounds));
  for (const size_t i : chosen)
    details.push_back(RoundDetail(numbers[i], rounds.at(numbers[i])).data(run, kPointBudget / chosen.size()));
  return details;
}

// [class, answer, how often, of how many], the most frequent first.
ordered_json mistakes_of(const Result& result) {
  struct Mistake {
    double count;
    size_t label, answer;
    double total;
  };
  std::vector<Mistake> mistakes;
  for (size_t label = 0; label < result.confusion.size(); ++label) {
    double total = 0;
    for (const double count : result.confusion[label])
      if (std::isfinite(count)) total += count;
    for (size_t answer = 0; answer < result.confusion.size(); ++answer)
      if (const double count = result.confusion[label][answer]; answer != label && count > 0)
        mistakes.push_back({count, label, answer, total});
  }
  std::ranges::stable_sort(mistakes, std::greater{}, &Mistake::count);
  ordered_json list = ordered_json::array();
  for (const Mistake& mistake : mistakes) {
    if (list.size() == kMostMistakes) break;
    list.push_back({result.classes[mistake.label], result.classes[mistake.answer],
                    short_number(mistake.count), short_number(mistake.total)});
  }
  return list;
}

ordered_json result_data(const Result& result) {
  ordered_json data{{"numbers", numbers_json(result.numbers)}, {"streams", ordered_json::object()}};
  for (const auto& [name, numbers] : result.streams)
    if (data["streams"].size() < kMostStreams) data["streams"][name] = numbers_json(numbers);
  data["num_classes"] = result.classes.size();
  if (result.classes.empty()) return data;
  data["mistakes"] = mistakes_of(result);
  if (result.classes.size() > kMostClasses) return data;
  data["classes"] = result.classes;
  data["confusion"] = ordered_json::array();
  for (const std::vector<double>& row : result.confusion) data["confusion"].push_back(short_numbers(row));
  return data;
}

ordered_json headline(const RunRecord& run) {
  const Best best = run.best();
  return {{"name", run.name},
          {"job", run.job},
          {"state", name_of(run.state)},
          {"began", run.began},
          {"seconds", short_number(run.seconds())},
          {"best",
           {{"validation_accuracy", short_number(best.validation_accuracy)},
            {"round", best.round},
            {"epoch", best.epoch},
            {"lane", best.lane ? ordered_json(*best.lane) : ordered_json()}}},
          {"test_accuracy", short_number(run.test_accuracy())},
          {"num_lanes", run.num_lanes()},
          {"last_epoch", run.last_epoch()},
          {"last_round", run.last_round()},
          {"last_return", short_number(run.last_return())},
          {"num_episodes", run.num_episodes()},
          {"num_lines", run.num_lines},
          {"num_damaged", run.num_damaged}};
}

}  // namespace

ordered_json page_data(const RunRecord& run) {
  const std::map<int64_t, Lines> rounds = lines_by_round(run);
  ordered_json data = headline(run);
  data["epochs"] = epoch_series(run);
  data["rounds"] = round_series(run);
  data["streams"] = stream_series(run);
  data["slots"] = run.slots;
  data["blueprints"] = run.blueprints;
  data["num_rounds"] = rounds.size();
  data["details"] = details_of(rounds, run);
  data["frontier"] = frontier_of(run, rounds);
  data["payoff"] = payoff_of(run);
  data["evaluation"] = evaluation_of(run);
  data["collapses"] = collapses_of(run);
  data["choices"] = rounds.size() > 1 ? choices_of(run, all_lines(run), ChoicesBy::kRound) : ordered_json();
  data["result"] = run.result ? result_data(*run.result) : ordered_json();
  data["config"] = run.config;
  data["environment"] = run.environment;
  return data;
}

ordered_json comparison_data(std::span<const RunRecord> runs) {
  ordered_json data{{"runs", ordered_json::array()}, {"options", differing_options(runs)}};
  for (const RunRecord& run : runs) {
    ordered_json each = headline(run);
    each["epochs"] = epoch_series(run);
    each["rounds"] = round_series(run);
    data["runs"].push_back(std::move(each));
  }
  return data;
}

ordered_json differing_options(std::span<const RunRecord> runs) {
  std::vector<std::string> keys;
  for (const RunRecord& run : runs)
    for (const auto& [key, value] : run.config.items())
      if (key != "run-dir" && std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
  ordered_json differing = ordered_json::object();
  for (const std::string& key : keys) {
    ordered_json values = ordered_json::array();
    for (const RunRecord& run : runs) {
      const auto found = run.config.find(key);
      values.push_back(found == run.config.end() ? ordered_json() : *found);
    }
    if (std::ranges::any_of(values, [&](const ordered_json& value) { return value != values.front(); }))
      differing[key] = std::move(values);
  }
  return differing;
}

}  // namespace espalier::watch
