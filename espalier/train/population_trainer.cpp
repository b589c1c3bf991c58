#include "espalier/train/population_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/interrupt.h"
#include "espalier/train/population_setup.h"

namespace espalier::train {
namespace {

// Seeds that a counterfactual says something about: before, nothing goes through them.
bool is_felt(const SlotState& state) {
  return holds_seed(state.stage) && state.amplitude > 0;
}

bool is_undecided(const SlotState& state) {
  return is_felt(state) && state.stage != SeedStage::kFossilized;
}

bool is_sound(const LaneRecord& record) {
  return record.trained.non_finite == 0 && std::isfinite(record.validated.loss);
}

}  // namespace

namespace {

// The host takes the options' lanes and the data's images.
TrainerSetup filled_in(TrainerSetup setup, const PopulationOptions& options) {
  const data::FieldSpec& field =
      setup.dataset->train.fields[chosen_field(options, specs_of(setup.dataset->train))].spec;
  setup.host.lanes = options.lanes;
  setup.host.in_channels = field.channels;
  setup.host.height = field.height;
  setup.host.width = field.width;
  setup.host.num_classes = setup.dataset->num_classes();
  return setup;
}

}  // namespace

PopulationTrainer::PopulationTrainer(const PopulationOptions& options, TrainerSetup setup)
    : options_(options),
      setup_(filled_in(std::move(setup), options)),
      compute_(precision_type(options.precision, setup_.dataset->device)),
      field_(chosen_field(options, specs_of(setup_.dataset->train))),
      train_(training_plan(options, setup_.device, compute_), {setup_.dataset}, data::Split::kTrain),
      validate_(evaluation_plan(options, setup_.device, compute_), {setup_.dataset},
                data::Split::kValidation),
      test_(evaluation_plan(options, setup_.device, compute_), {setup_.dataset}, data::Split::kTest),
      population_(setup_.host, setup_.blueprints, setup_.dataset->device, compute_),
      lifecycle_(lifecycle_for(options, population_)),
      step_(population_, train_.gather_call(0), field_,
            step_options(options, train_.length(), compute_, *setup_.dataset)),
      validation_(population_, validate_.gather_call(0), field_, validate_.length(),
                  evaluation_options(step_, compute_, *setup_.dataset)),
      snapshots_(population_, step_, lifecycle_),
      lanes_(static_cast<size_t>(options.lanes)) {
  if (!setup_.controller) setup_.controller = controller_for(options, population_.blueprints());
  std::vector<int64_t> all;
  for (int64_t lane = 0; lane < options.lanes; ++lane) {
    lanes_[static_cast<size_t>(lane)].accuracy_before.resize(static_cast<size_t>(population_.num_slots()));
    all.push_back(lane);
  }
  snapshots_.take(all);
}

void PopulationTrainer::begin_epoch() {
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    Lane& of = lanes_[static_cast<size_t>(lane)];
    if (of.is_retired) continue;
    for (const grow::StageMove& move : lifecycle_.begin_epoch(lane))
      if (move.to == SeedStage::kTraining)
        of.accuracy_before[static_cast<size_t>(move.slot)] =
            of.accuracies.empty() ? std::nullopt : std::optional(of.accuracies.back());
  }
  step_.follow(population_.apply(lifecycle_.states()));
  step_.begin_epoch(epoch_);
}

EpochRecord PopulationTrainer::train_epoch(const Progress& progress) {
  const auto began = std::chrono::steady_clock::now();
  const auto captures = [&] { return step_.graphs().num_captures() + validation_.graphs().num_captures(); };
  const auto capture_seconds = [&] {
    return step_.graphs().capture_seconds() + validation_.graphs().capture_seconds();
  };
  EpochRecord record{.epoch = epoch_ + 1, .num_captures = -captures(), .capture_seconds = -capture_seconds()};
  const std::string title = fmt::format("epoch {}/{}", record.epoch, options_.epochs);

  begin_epoch();
  for (int64_t batch = 1; batch <= steps_per_epoch(); ++batch) {
    throw_if_interrupted();
    step_.run();
    if (progress) progress(title, batch, steps_per_epoch());
  }
  const std::vector<LaneMetrics> trained = step_.metrics();
  // A retired lane's running statistics moved with the batches it saw.
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane)
    if (lanes_[static_cast<size_t>(lane)].is_retired) snapshots_.restore(lane);
  const std::vector<LaneScore> validated = validation_.score(tick_of(progress, title + ", validation"));
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    const auto i = static_cast<size_t>(lane);
    record.lanes.push_back({.lane = lane,
                            .outcome = lanes_[i].is_retired ? LaneOutcome::kRetired : LaneOutcome::kTrained,
                            .trained = trained[i],
                            .validated = validated[i]});
  }
  measure_slots(record, progress);
  settle_failures(record);
  decide(record);
  epoch_ += 1;

  record.num_captures += captures();
  record.capture_seconds += capture_seconds();
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return record;
}

// The states of every slot and what the epoch told about its seed; one extra pass a slot that any lane has
// yet to decide about.
void PopulationTrainer::measure_slots(EpochRecord& record, const Progress& progress) {
  for (LaneRecord& lane : record.lanes) {
    const bool is_finite = is_sound(lane);
    for (int64_t slot = 0; slot < population_.num_slots(); ++slot) {
      const auto s = static_cast<size_t>(slot);
      SlotReport report{.state = lifecycle_.at(lane.lane, slot)};
      if (holds_seed(report.state.stage) && report.state.stage != SeedStage::kGerminated) {
        const double norm = lane.trained.slots[s];
        report.measured.finite = is_finite && std::isfinite(norm);
        // A seed without parameters has no gradients to measure.
        if (norm != 0) {
          report.measured.gradient_norm = norm;
          report.measured.gradient_ratio = norm / lane.trained.gradient_norm;
        }
        if (const auto& before = lanes_[static_cast<size_t>(lane.lane)].accuracy_before[s])
          report.measured.improvement_points = 100 * (lane.validated.accuracy - *before);
      }
      lane.slots.push_back(report);
    }
  }
  for (int64_t slot = 0; slot < population_.num_slots(); ++slot) {
    const auto s = static_cast<size_t>(slot);
    const bool is_asked = std::ranges::any_of(record.lanes, [&](const LaneRecord& lane) {
      return lane.outcome == LaneOutcome::kTrained && is_undecided(lane.slots[s].state);
    });
    if (!is_asked) continue;
    const std::string& name = population_.slots()[s].name;
    const auto without = validation_.score_without(slot, tick_of(progress, "without " + name));
    for (LaneRecord& lane : record.lanes)
      if (is_felt(lane.slots[s].state))
        lane.slots[s].measured.contribution_points =
            100 * (lane.validated.accuracy - without[static_cast<size_t>(lane.lane)].accuracy);
  }
}

// Lanes that failed go back; the others' state is the one to come back to.
void PopulationTrainer::settle_failures(EpochRecord& record) {
  std::vector<int64_t> good;
  for (LaneRecord& lane : record.lanes) {
    Lane& of = lanes_[static_cast<size_t>(lane.lane)];
    if (!of.is_retired && is_sound(lane)) {
      of.accuracies.push_back(lane.validated.accuracy);
      good.push_back(lane.lane);
    } else if (!of.is_retired) {
      snapshots_.restore(lane.lane);
      if (of.num_rollbacks < kMaxRollbacks) {
        of.num_rollbacks += 1;
        of.rate_factor /= 2;
        step_.set_rate_factor(lane.lane, of.rate_factor);
        lane.outcome = LaneOutcome::kRolledBack;
      } else {
        of.is_retired = true;
        step_.freeze(lane.lane);
        lane.outcome = LaneOutcome::kRetired;
      }
    }
    lane.rate_factor = of.rate_factor;
    lane.num_rollbacks = of.num_rollbacks;
  }
  snapshots_.take(good);
  for (LaneRecord& lane : record.lanes) lane.num_parameters = population_.num_parameters(lane.lane);
}

LaneReport PopulationTrainer::report_of(const LaneRecord& record) const {
  return {.lane = record.lane,
          .epoch = epoch_ + 1,
          .num_epochs = options_.epochs,
          .train_loss = record.trained.loss,
          .train_accuracy = record.trained.accuracy,
          .validation_loss = record.validated.loss,
          .validation_accuracy = record.validated.accuracy,
          .accuracies = lanes_[static_cast<size_t>(record.lane)].accuracies,
          .host_gradient_norm = record.trained.gradient_norm,
          .slots = record.slots};
}

void PopulationTrainer::decide(EpochRecord& record) {
  std::vector<LaneReport> reports;
  for (const LaneRecord& lane : record.lanes)
    if (lane.outcome == LaneOutcome::kTrained) reports.push_back(report_of(lane));
  const std::vector<SeedAction> actions = setup_.controller->decide(reports);
  if (actions.size() != reports.size())
    fail("the controller gave {} actions for {} lanes", actions.size(), reports.size());
  for (size_t i = 0; i < actions.size(); ++i) {
    LaneRecord& lane = record.lanes[static_cast<size_t>(reports[i].lane)];
    lane.action = actions[i];
    if (lane.action.op == SeedOp::kWait) continue;
    const auto slot = static_cast<size_t>(lane.action.slot);
    const auto measured = slot < lane.slots.size() ? lane.slots[slot].measured : grow::SeedMeasurements{};
    lane.gate = lifecycle_.act(lane.lane, lane.action, measured);
  }
}

Evaluation::Tick PopulationTrainer::tick_of(const Progress& progress, const std::string& title) const {
  if (!progress) return {};
  return [&progress, title](int64_t done, int64_t total) { progress(title, done, total); };
}

std::vector<LaneScore> PopulationTrainer::test(const Progress& progress) {
  TrainStepOptions options = evaluation_options(step_, compute_, *setup_.dataset);
  options.graphs.graphs = Graphs::kOff;  // once: nothing to replay
  Evaluation evaluation(population_, test_.gather_call(0), field_, test_.length(), options);
  return evaluation.score(tick_of(progress, "test"));
}

}  // namespace espalier::train
