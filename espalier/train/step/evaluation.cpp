#include "espalier/train/step/evaluation.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "espalier/core/machine/interrupt.h"
#include "espalier/lanes/head/score.h"

namespace espalier::train {

Evaluation::Evaluation(grow::NetworkStack& population, data::GatherCall call, size_t field,
                       int64_t num_batches, const TrainStepOptions& options)
    : world_(*options.world),
      population_(population),
      batch_(
          std::move(call),
          {.fields = {field}, .num_batches = num_batches, .type = options.compute, .format = options.format}),
      num_batches_(num_batches),
      graphs_(options.graphs) {
  sums_ = at::zeros({1 + population.num_slots(), 3, population.num_lanes()},
                    at::TensorOptions(batch_.device()).dtype(at::kDouble));
}

std::vector<LaneScore> Evaluation::score(const Tick& tick) {
  pass({}, {}, tick);
  return scores(sums_.select(0, 0).to(at::kCPU));
}

void Evaluation::pass(std::span<const int64_t> slots, SplitPart part, const Tick& tick) {
  sums_.zero_();
  const BatchRange whole = part.batches(num_batches_), own = own_batches(whole.size(), world_);
  const int64_t begin = whole.begin + own.begin, end = whole.begin + own.end;
  batch_.move_to(0, begin, end);
  const std::string key = fmt::format("{} without {}", population_.signature(), fmt::join(slots, ","));
  for (int64_t batch = begin; batch < end; ++batch) {
    throw_if_interrupted();
    batch_.prepare();
    graphs_.run(key, [&] { body(slots); });
    if (tick) tick(batch - begin + 1, end - begin);
  }
  world_.sum_(sums_);
}

std::vector<LaneScore> Evaluation::scores(const at::Tensor& copied) {
  const auto sums = copied.accessor<double, 2>();
  std::vector<LaneScore> scores;
  for (int64_t lane = 0; lane < sums.size(1); ++lane) {
    const double samples = std::max(sums[2][lane], 1.0);
    scores.push_back({.loss = sums[0][lane] / samples, .accuracy = sums[1][lane] / samples});
  }
  return scores;
}

void Evaluation::body(std::span<const int64_t> slots) {
  const c10::NoGradGuard no_grad;
  batch_.deliver();
  const grow::HostBranches logits = population_.forward_without_each(
      batch_.images()[0].expand({population_.num_lanes(), -1, -1, -1, -1}), slots);
  add(0, logits.whole);
  for (size_t i = 0; i < slots.size(); ++i) add(1 + slots[i], logits.without[i]);
  batch_.advance();
}

void Evaluation::add(int64_t place, const at::Tensor& logits) {
  // A last batch that is not full says so in its labels.
  lanes::add_lane_scores_(sums_.select(0, place), logits,
                          batch_.labels().expand({population_.num_lanes(), -1}));
}

}  // namespace espalier::train
