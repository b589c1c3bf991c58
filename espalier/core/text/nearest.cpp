#include "espalier/core/text/nearest.h"

#include <fmt/format.h>

#include <algorithm>

namespace espalier {
namespace {

// No name of ours is as long, and what is given may be a whole file's text: the search takes time in
// proportion.
constexpr size_t kMaxCompared = 64;

int score(std::string_view name, std::string_view candidate) {
  const int distance = edit_distance(name, candidate);
  const bool begins = name.size() >= 2 && candidate.starts_with(name);
  const bool ends = name.size() >= 2 && candidate.ends_with(name) && candidate.size() > name.size() &&
                    candidate[candidate.size() - name.size() - 1] == '-';
  return begins || ends ? std::min(distance, 1) : distance;
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table are enough: the current one, and two above for swaps.
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int change = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({change, above[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, above);
    std::swap(above, row);
  }
  return above[b.size()];
}

std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& candidates) {
  name = name.substr(0, kMaxCompared);
  const auto nearest = std::min_element(
      candidates.begin(), candidates.end(),
      [name](std::string_view a, std::string_view b) { return score(name, a) < score(name, b); });
  return nearest == candidates.end() ? std::string_view{} : *nearest;
}

std::string suggestion(std::string_view name, const std::vector<std::string_view>& candidates,
                       std::string_view prefix) {
  if (candidates.empty()) return {};
  name = name.substr(0, kMaxCompared);
  const std::string_view nearest = nearest_name(name, candidates);
  // A third of the letters wrong is still the same word, in a short one a single letter (or two swapped);
  // more is another word, and asking would be odd.
  const int letters = static_cast<int>(name.size());
  const int near = letters <= 5 ? 1 : letters / 3;
  return score(name, nearest) <= near ? fmt::format("; did you mean {}{}?", prefix, nearest) : std::string{};
}

}  // namespace espalier
