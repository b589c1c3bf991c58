#include "espalier/watch/page/selection.h"

#include <cmath>
#include <set>

namespace espalier::watch {

std::vector<size_t> some_of(size_t count, size_t most) {
  std::vector<size_t> chosen;
  if (count <= most) {
    for (size_t i = 0; i < count; ++i) chosen.push_back(i);
  } else {
    for (size_t i = 1; i <= most; ++i) chosen.push_back(i * count / most - 1);
  }
  return chosen;
}

std::map<int64_t, const LaneLine*> last_lines(const Lines& lines) {
  std::map<int64_t, const LaneLine*> last;
  for (const LaneLine* line : lines) {
    const LaneLine*& kept = last[line->lane];
    if (kept == nullptr || line->step >= kept->step) kept = line;
  }
  return last;
}

std::map<int64_t, const LaneLine*> last_scored_lines(const Lines& lines) {
  // A step is validated in all lanes: a lane without a number in it was lost, and has no older one instead.
  std::set<int64_t> validated;
  for (const LaneLine* line : lines)
    if (!std::isnan(line->validation_accuracy)) validated.insert(line->step);
  Lines scored;
  for (const LaneLine* line : lines)
    if (validated.contains(line->step)) scored.push_back(line);
  std::map<int64_t, const LaneLine*> last = last_lines(scored);
  last.merge(last_lines(lines));
  return last;
}

}  // namespace espalier::watch
