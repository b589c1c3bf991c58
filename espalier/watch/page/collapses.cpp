#include "espalier/watch/page/collapses.h"

#include <set>

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostListed = 200;

}  // namespace

ordered_json collapses_of(const RunRecord& run) {
  ordered_json listed = ordered_json::array();
  std::set<int64_t> lanes;
  int64_t total = 0;
  for (const LaneLine& line : run.lanes) {
    if (line.collapse.empty()) continue;
    total += 1;
    lanes.insert(line.lane);
    if (listed.size() == kMostListed) continue;
    ordered_json slots = ordered_json::array();
    for (const uint32_t slot : line.barred) slots.push_back(run.slots[slot]);
    listed.push_back({{"round", line.round},
                      {"step", line.step},
                      {"lane", line.lane},
                      {"why", line.collapse},
                      {"barred", std::move(slots)}});
  }
  if (total == 0) return nullptr;
  return {{"total", total}, {"num_lanes", lanes.size()}, {"listed", std::move(listed)}};
}

}  // namespace espalier::watch
