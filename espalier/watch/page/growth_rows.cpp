#include "espalier/watch/page/growth_rows.h"

#include <algorithm>
#include <map>
#include <set>

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kSegmentBudget = 60000;  // all rows together: about a megabyte
constexpr size_t kMostSegments = 400;     // per row
constexpr size_t kFewestSegments = 20;

struct Segment {
  int64_t first = 0;  // steps, both inclusive
  int64_t last = 0;
  SeedStage stage = SeedStage::kDormant;
  int64_t blueprint = -1;

  bool is_same_seed(const Segment& other) const {
    return stage == other.stage && blueprint == other.blueprint;
  }
};

using RowKey = std::pair<int64_t, std::string>;  // lane, name of the slot: sorted as a person reads

// Longer than its limit, a row is cut into spans of steps, each in the stage that it was in longest.
std::vector<Segment> thinned(const std::vector<Segment>& segments, size_t most) {
  if (segments.size() <= most) return segments;
  const int64_t begin = segments.front().first;
  const int64_t span = (segments.back().last - begin) / static_cast<int64_t>(most) + 1;
  std::vector<Segment> kept;
  size_t next = 0;
  for (int64_t first = begin; first <= segments.back().last; first += span) {
    const int64_t last = std::min(first + span - 1, segments.back().last);
    while (next < segments.size() && segments[next].last < first) ++next;
    const Segment* longest = nullptr;
    int64_t longest_steps = 0;
    for (size_t i = next; i < segments.size() && segments[i].first <= last; ++i) {
      const int64_t steps = std::min(last, segments[i].last) - std::max(first, segments[i].first) + 1;
      if (steps > longest_steps) longest = &segments[i], longest_steps = steps;
    }
    if (longest == nullptr) continue;
    if (!kept.empty() && kept.back().is_same_seed(*longest) && kept.back().last == first - 1)
      kept.back().last = last;
    else
      kept.push_back({first, last, longest->stage, longest->blueprint});
  }
  return kept;
}

}  // namespace

ordered_json growth_rows(const RunRecord& run, std::span<const LaneLine* const> lines,
                         std::span<const int64_t> lanes) {
  std::vector<const LaneLine*> ordered(lines.begin(), lines.end());
  std::ranges::stable_sort(ordered, {}, &LaneLine::step);
  std::map<RowKey, std::vector<Segment>> rows;
  std::map<int64_t, int64_t> step_before;  // by lane: a segment goes on only from one step to the lane's next
  for (const LaneLine* line : ordered) {
    if (!std::ranges::binary_search(lanes, line->lane)) continue;
    const auto before = step_before.find(line->lane);
    for (const SlotLine& slot : line->slots) {
      if (slot.stage == SeedStage::kDormant) continue;
      std::vector<Segment>& row = rows[{line->lane, run.slots[slot.slot]}];
      const Segment now{line->step, line->step, slot.stage, slot.blueprint ? int64_t{*slot.blueprint} : -1};
      if (!row.empty() && row.back().last >= now.first) continue;  // said twice
      if (!row.empty() && row.back().is_same_seed(now) && before != step_before.end() &&
          row.back().last == before->second)
        row.back().last = now.last;
      else
        row.push_back(now);
    }
    step_before[line->lane] = line->step;
  }
  const size_t most =
      std::clamp(kSegmentBudget / std::max<size_t>(1, rows.size()), kFewestSegments, kMostSegments);
  ordered_json made = ordered_json::array();
  for (const auto& [key, segments] : rows) {
    ordered_json list = ordered_json::array();
    for (const Segment& segment : thinned(segments, most))
      list.push_back({segment.first, segment.last, static_cast<int>(segment.stage), segment.blueprint});
    made.push_back({{"lane", key.first}, {"slot", key.second}, {"segments", std::move(list)}});
  }
  return made;
}

}  // namespace espalier::watch
