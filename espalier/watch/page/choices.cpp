#include "espalier/watch/page/choices.h"

#include <algorithm>
#include <array>
#include <map>

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostBars = 120;

using Counts = std::array<int64_t, kNumSeedOps>;

}  // namespace

ordered_json choices_of(const RunRecord& run, std::span<const LaneLine* const> lines, ChoicesBy by) {
  std::map<int64_t, int64_t> last_steps;  // by round
  for (const LaneLine* line : lines) last_steps[line->round] = std::max(last_steps[line->round], line->step);
  std::map<int64_t, Counts> all;
  std::vector<int64_t> planted(run.blueprints.size());
  bool is_idle = true;
  for (const LaneLine* line : lines) {
    if (!line->is_trained || line->step == last_steps[line->round]) continue;
    const auto place = by == ChoicesBy::kStep ? line->step : line->round;
    all[place][static_cast<size_t>(line->op)] += 1;
    if (line->planted) planted[*line->planted] += 1;
    is_idle &= line->op == SeedOp::kWait;
  }
  if (is_idle) return nullptr;
  const size_t bin = (all.size() + kMostBars - 1) / kMostBars;
  ordered_json from = ordered_json::array(), to = ordered_json::array();
  std::vector<Counts> counts;
  size_t i = 0;
  for (const auto& [place, own] : all) {
    if (i++ % bin == 0) {
      from.push_back(place);
      to.push_back(place);
      counts.push_back({});
    }
    to.back() = place;
    for (size_t op = 0; op < own.size(); ++op) counts.back()[op] += own[op];
  }
  return {{"from", std::move(from)}, {"to", std::move(to)}, {"counts", counts}, {"planted", planted}};
}

}  // namespace espalier::watch
