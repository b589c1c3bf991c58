#include "espalier/watch/page/evaluation.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/interval.h"
#include "espalier/core/sign_flip.h"
#include "espalier/watch/page/sentence.h"
#include "espalier/watch/page/short_number.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostControllers = 32;
constexpr size_t kMostNetworks = 2000;  // per controller

const Evaluated* whole_of(const RunRecord& run, uint32_t controller) {
  for (const Evaluated& each : run.evaluated)
    if (each.controller == controller) return &each;
  return nullptr;
}

// "heuristic 53.2 %, +12.2 points, 95 % interval +8.1 to +16.3, p = 0.008 against none: better"
std::string words_of(const Evaluated& whole, const RunRecord& run) {
  const Interval gain{number_in(whole.numbers, "test_accuracy_over_first"),
                      number_in(whole.numbers, "test_accuracy_over_first_95")};
  std::string text = fmt::format("{} {}", run.controllers[whole.controller],
                                 percent_words(number_in(whole.numbers, "test_accuracy")));
  if (whole.controller == 0) return text + " test accuracy";
  constexpr const char* kVerdicts[] = {"better", "worse", "too close to tell from chance"};
  const double p = number_in(whole.numbers, "test_accuracy_over_first_p");
  return fmt::format("{}, {}{} against {}: {}", text, difference_words(gain),
                     std::isnan(p) ? "" : fmt::format(", p{}{}", p < 0.001 ? " " : " = ", p_text(p)),
                     run.controllers.front(), kVerdicts[static_cast<size_t>(verdict_on(gain))]);
}

std::string sentence_of(const RunRecord& run) {
  std::string text;
  for (const Evaluated& whole : run.evaluated)
    text += (text.empty() ? "Pair by pair on the same episodes: " : "; ") + words_of(whole, run);
  if (text.empty()) return "No controller has played all of its episodes yet.";
  if (run.evaluated.front().intervals_over == "networks")
    return text + ". Intervals are over the networks of a single episode; more `--episodes` say more.";
  return text + ".";
}

}  // namespace

ordered_json evaluation_of(const RunRecord& run) {
  if (run.controllers.empty()) return nullptr;
  ordered_json data{{"sentence", sentence_of(run)},
                    {"episodes", run.num_episodes()},
                    {"intervals_over", run.evaluated.empty() ? "" : run.evaluated.front().intervals_over},
                    {"controllers", ordered_json::array()}};
  for (uint32_t i = 0; i < run.controllers.size() && i < kMostControllers; ++i) {
    ordered_json one{{"name", run.controllers[i]},
                     {"networks", ordered_json::array()},
                     {"numbers", ordered_json::object()}};
    if (const Evaluated* whole = whole_of(run, i))
      for (const auto& [key, value] : whole->numbers) one["numbers"][key] = short_number(value);
    data["controllers"].push_back(std::move(one));
  }
  // [episode, lane, test accuracy, return, parameters, seeds kept]
  for (const EvaluatedLane& line : run.evaluated_lanes) {
    if (line.controller >= data["controllers"].size()) continue;
    ordered_json& networks = data["controllers"][line.controller]["networks"];
    if (networks.size() < kMostNetworks)
      networks.push_back({line.episode, line.lane, short_number(line.test_accuracy),
                          short_number(line.episode_return), short_number(line.parameters),
                          short_number(line.seeds_kept)});
  }
  return data;
}

}  // namespace espalier::watch
