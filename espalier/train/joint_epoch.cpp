#include "espalier/train/joint_epoch.h"

#include <algorithm>
#include <chrono>

#include "espalier/core/error.h"
#include "espalier/train/population_trainer.h"

namespace espalier::train {
namespace {

struct Captures {
  int64_t number = 0;
  double seconds = 0;
};

Captures captures_of(std::span<PopulationTrainer* const> populations) {
  Captures all;
  for (PopulationTrainer* population : populations)
    for (const StepGraphs* graphs : {&population->step().graphs(), &population->validation().graphs()}) {
      all.number += graphs->num_captures();
      all.seconds += graphs->capture_seconds();
    }
  return all;
}

// What the controller says, told to the lanes it is about.
void decide(std::span<PopulationTrainer* const> populations, std::vector<EpochRecord>& records,
            const EpochBuffer& buffer, Controller& controller) {
  struct Place {
    size_t population;
    size_t lane;
  };
  std::vector<Place> places(static_cast<size_t>(buffer.num_lanes()));
  std::vector<LaneReport> reports;
  for (size_t p = 0; p < populations.size(); ++p) {
    for (size_t lane = 0; lane < records[p].lanes.size(); ++lane)
      places[static_cast<size_t>(records[p].lanes[lane].lane)] = {p, lane};
    std::ranges::move(populations[p]->reports_of(records[p]), std::back_inserter(reports));
  }
  std::ranges::sort(reports, {}, &LaneReport::lane);
  for (LaneReport& report : reports) report.carried = buffer.carried_by(report.lane);
  const std::vector<SeedAction> actions = controller.decide(reports);
  if (actions.size() != reports.size())
    fail("the controller gave {} actions for {} lanes", actions.size(), reports.size());
  for (size_t i = 0; i < actions.size(); ++i) {
    const Place& place = places[static_cast<size_t>(reports[i].lane)];
    populations[place.population]->act(static_cast<int64_t>(place.lane),
                                       records[place.population].lanes[place.lane], actions[i]);
  }
}

}  // namespace

EpochRecord train_together(std::span<PopulationTrainer* const> populations, EpochBuffer& buffer,
                           Controller& controller, const Progress& progress, StepTiming* acting) {
  const auto began = std::chrono::steady_clock::now();
  const Captures before = captures_of(populations);
  for (PopulationTrainer* population : populations) population->begin_epoch(buffer);
  buffer.upload();
  for (size_t p = 0; p < populations.size(); ++p) {
    populations[p]->queue_epoch(progress);
    buffer.collect(p, populations[p]->step().sums(), populations[p]->validation().sums());
  }
  const PopulationTrainer& first = *populations.front();
  if (acting) {
    acting->begin_step();
    acting->begin(StepPart::kAct);
  }
  const at::Tensor carried = controller.act(buffer.signs(first.steps_per_epoch(), first.telemetry()));
  if (acting) acting->end(StepPart::kAct);
  buffer.read(carried);

  std::vector<EpochRecord> records;
  for (size_t p = 0; p < populations.size(); ++p)
    records.push_back(populations[p]->settle_epoch(buffer.sums_of(p)));
  decide(populations, records, buffer, controller);

  EpochRecord all{.epoch = records.front().epoch};
  for (EpochRecord& record : records) std::ranges::move(record.lanes, std::back_inserter(all.lanes));
  std::ranges::sort(all.lanes, {}, &LaneRecord::lane);
  const Captures after = captures_of(populations);
  all.num_captures = after.number - before.number;
  all.capture_seconds = after.seconds - before.seconds;
  all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return all;
}

}  // namespace espalier::train
