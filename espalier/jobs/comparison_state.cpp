#include "espalier/jobs/comparison_state.h"

#include <fmt/format.h>

#include "espalier/core/sign_flip.h"
#include "espalier/run/archive.h"

namespace espalier::jobs {
namespace {

std::vector<double> differences(const ControllerScores& scores, const ControllerScores& other) {
  std::vector<double> differences;
  for (size_t i = 0; i < scores.accuracy.size(); ++i)
    differences.push_back(scores.accuracy[i] - other.accuracy[i]);
  return differences;
}

}  // namespace

Interval ControllerScores::interval(const std::vector<double>& values) const {
  return interval_over_groups(values, values.size() / static_cast<size_t>(num_episodes));
}

Interval ControllerScores::gain_over(const ControllerScores& other) const {
  return interval(differences(*this, other));
}

double ControllerScores::chance_over(const ControllerScores& other) const {
  return sign_flip_p_over_groups(differences(*this, other),
                                 accuracy.size() / static_cast<size_t>(num_episodes));
}

void ControllerScores::visit_state(run::StateArchive& archive) {
  archive.value("accuracy", accuracy);
  archive.value("added", added);
  archive.value("kept", kept);
  archive.value("returns", returns);
  archive.value("lost", num_lost);
  archive.value("illegal", num_illegal);
  archive.value("episodes", num_episodes);
}

void ComparisonState::visit_state(run::StateArchive& archive) {
  archive.value("compared", compared);
  std::vector<std::string> names;
  for (const ControllerScores& each : scores) names.push_back(each.name);
  archive.value("controllers", names);
  scores.resize(names.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i].name = names[i];
    archive.part(fmt::format("controller{}", i + 1), [&] { scores[i].visit_state(archive); });
  }
  archive.value("policy", policy);
  archive.value("playing", playing);
  archive.value("files", files);
}

}  // namespace espalier::jobs
