#include "espalier/run/kept_checkpoints.h"

#include <vector>

namespace espalier::run {

// The oldest among equals: a new best is better than all before.
std::optional<std::string> KeptCheckpoints::best() {
  std::optional<std::string> best;
  for (const std::string& name : folder_.names()) {
    if (!scores_.contains(name)) scores_[name] = folder_.score_of(name);
    if (scores_[name] && (!best || *scores_[name] > *scores_[*best])) best = name;
  }
  return best;
}

std::optional<double> KeptCheckpoints::best_score() {
  const std::optional<std::string> name = best();
  return name ? scores_.at(*name) : std::nullopt;
}

void KeptCheckpoints::add(const std::string& name, std::optional<double> score) {
  scores_[name] = score;
  const std::optional<std::string> kept = best();
  const std::vector<std::string> names = folder_.names();
  for (size_t i = 0; i + static_cast<size_t>(keep_) < names.size(); ++i)
    if (names[i] != kept) {
      folder_.remove(names[i]);
      scores_.erase(names[i]);
    }
}

}  // namespace espalier::run
