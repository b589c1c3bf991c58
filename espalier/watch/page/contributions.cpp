#include "espalier/watch/page/contributions.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "espalier/watch/lines/thinning.h"
#include "espalier/watch/page/short_number.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostCurves = 400;
constexpr size_t kContributionPoints = 40000;  // for all curves together

struct SeedCurve {
  int64_t lane = 0;
  uint32_t slot = 0;
  std::optional<uint32_t> blueprint;
  std::vector<int64_t> steps;
  std::vector<double> points;
};

}  // namespace

ordered_json contributions_of(const RunRecord& run, std::span<const LaneLine* const> lines,
                              std::span<const int64_t> lanes) {
  std::vector<const LaneLine*> ordered(lines.begin(), lines.end());
  std::ranges::stable_sort(ordered, {}, &LaneLine::step);
  std::vector<SeedCurve> curves;
  std::map<std::pair<int64_t, uint32_t>, size_t> open;  // the seed alive in a lane's slot
  for (const LaneLine* line : ordered) {
    if (!std::ranges::binary_search(lanes, line->lane)) continue;
    for (const SlotLine& slot : line->slots) {
      const std::pair<int64_t, uint32_t> where{line->lane, slot.slot};
      if (!holds_seed(slot.stage) || slot.stage == SeedStage::kGerminated) open.erase(where);
      if (!std::isfinite(slot.contribution_points)) continue;
      auto found = open.find(where);
      if (found == open.end() || curves[found->second].blueprint != slot.blueprint) {
        open[where] = curves.size();
        curves.push_back({line->lane, slot.slot, slot.blueprint, {}, {}});
        found = open.find(where);
      }
      curves[found->second].steps.push_back(line->step);
      curves[found->second].points.push_back(slot.contribution_points);
    }
  }
  // The longest-lived tell most, where there are more than can be drawn.
  std::ranges::stable_sort(curves, std::greater{}, [](const SeedCurve& each) { return each.steps.size(); });
  if (curves.size() > kMostCurves) curves.resize(kMostCurves);
  std::ranges::stable_sort(curves, {}, [](const SeedCurve& each) { return std::pair(each.lane, each.slot); });
  const size_t most =
      std::clamp<size_t>(kContributionPoints / std::max<size_t>(1, curves.size()) / 2 * 2, 40, 400);
  ordered_json made = ordered_json::array();
  for (const SeedCurve& curve : curves) {
    const Thinning thinning(curve.steps.size(), most);
    made.push_back({{"lane", curve.lane},
                    {"slot", run.slots[curve.slot]},
                    {"blueprint", curve.blueprint ? run.blueprints[*curve.blueprint] : "?"},
                    {"x", thinning.places(curve.steps)},
                    {"y", short_numbers(thinning.values(curve.points))}});
  }
  return made;
}

}  // namespace espalier::watch
