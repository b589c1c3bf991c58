#include "espalier/watch/page/frontier.h"

#include <algorithm>
#include <cmath>

#include "espalier/watch/page/short_number.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostFrontierPoints = 1500;

struct FrontierPoint {
  double parameters;
  double accuracy;
  int64_t lane;
  int64_t round;
};

// The points that no other beats in both, from small to large.
std::vector<FrontierPoint> pareto_front(std::vector<FrontierPoint> points) {
  std::ranges::sort(points, [](const FrontierPoint& a, const FrontierPoint& b) {
    return a.parameters != b.parameters ? a.parameters < b.parameters : a.accuracy > b.accuracy;
  });
  std::vector<FrontierPoint> front;
  for (const FrontierPoint& point : points)
    if (front.empty() || point.accuracy > front.back().accuracy) front.push_back(point);
  return front;
}

ordered_json points_json(const std::vector<FrontierPoint>& points) {
  ordered_json list = ordered_json::array();
  for (const size_t i : some_of(points.size(), kMostFrontierPoints))
    list.push_back({short_number(points[i].parameters), short_number(points[i].accuracy), points[i].lane,
                    points[i].round});
  return list;
}

}  // namespace

ordered_json frontier_of(const RunRecord& run, const std::map<int64_t, Lines>& rounds) {
  std::map<int64_t, double> tested;
  if (rounds.size() == 1)  // with many, only the last round's networks were tested
    for (const LaneResult& result : run.lane_results) tested[result.lane] = result.test_accuracy;
  std::vector<FrontierPoint> points;
  for (const auto& [round, lines] : rounds) {
    for (const auto& [lane, line] : last_scored_lines(lines)) {
      const auto found = tested.find(lane);
      const double accuracy = found == tested.end() ? line->validation_accuracy : found->second;
      if (!std::isnan(accuracy) && !std::isnan(line->parameters))
        points.push_back({line->parameters, accuracy, lane, round});
    }
  }
  return {{"measure", tested.empty() ? "validation accuracy" : "test accuracy"},
          {"all", points.size()},
          {"points", points_json(points)},
          {"front", points_json(pareto_front(points))}};
}

}  // namespace espalier::watch
