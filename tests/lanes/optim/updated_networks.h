// Networks with all that an update of many groups reads and writes, for tests.
#pragma once

#include <deque>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "espalier/lanes/optim/group_update.h"
#include "tests/lanes/compare.h"

namespace espalier::lanes::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What a group is made of.
struct Shape {
  std::vector<int64_t> lanes;                // of its entries, -1 empty
  std::vector<std::vector<int64_t>> values;  // the sizes of an entry's parameters
};

struct NetworkOptions {
  std::vector<Shape> shapes;  // the hosts' first
  at::ScalarType type = at::kFloat;
  at::ScalarType compute = at::kFloat;
  at::Device device = at::kCPU;
  LaneSgdOptions sgd{
      .momentum = 0.9, .nesterov = true, .weight_decay = 5e-4, .rate_factor = 0.75, .warm_up_steps = 6};
};

inline std::vector<int64_t> lanes_up_to(int64_t count) {
  std::vector<int64_t> lanes(static_cast<size_t>(count));
  std::iota(lanes.begin(), lanes.end(), 0);
  return lanes;
}

// Four hosts, and two stacks of seeds in an order that is not the lanes'. Every lane holds one seed at least.
inline std::vector<Shape> some_shapes() {
  return {{lanes_up_to(4), {{5, 3, 3, 3}, {7}, {10, 33}}},
          {{2, -1, 0, 1}, {{8, 4, 3, 3}, {8}}},
          {{3, 1, -1}, {{31}}}};
}

// Networks with all that an update reads and writes. Values and gradients are functions of (group, parameter,
// step) alone, so two of one setup are copies of each other.
struct Networks {
  explicit Networks(const NetworkOptions& setup) : setup(setup) {
    const auto options = at::TensorOptions(setup.type).device(setup.device);
    const int64_t lanes = num_lanes();
    for (const Shape& shape : setup.shapes) {
      const auto doubles = options.dtype(at::kDouble);
      UpdatedGroup group{.lanes = shape.lanes,
                         .momentum_factors = at::full({lanes}, setup.sgd.momentum, doubles),
                         .weight_decays = at::full({lanes}, setup.sgd.weight_decay, doubles)};
      for (std::vector<int64_t> sizes : shape.values) {
        sizes.insert(sizes.begin(), std::ssize(shape.lanes));
        group.parameters.push_back(&owned.emplace_back(sizes, options, setup.compute));
        fill(group.parameters.back()->storage(), 1000);
        group.parameters.back()->refresh();
      }
      group.optimizer = &optimizers.emplace_back(group.parameters, setup.sgd);
      if (!groups.empty()) {
        group.frozen = at::zeros({std::ssize(shape.lanes)}, options.dtype(at::kBool));
        group.norms = at::zeros({lanes}, options.dtype(at::kDouble));
      }
      groups.push_back(group);
    }
    const auto doubles = options.dtype(at::kDouble);
    sums = {.norms = at::zeros({lanes}, doubles),
            .largest_norms = at::zeros({lanes}, doubles),
            .non_finite = at::zeros({lanes}, doubles),
            .skipped = at::zeros({lanes}, doubles),
            .is_whole = at::ones({lanes}, options.dtype(at::kBool))};
    inputs = {.losses = at::ones({lanes}, options),
              .is_active = at::ones({lanes}, options.dtype(at::kBool)),
              .peak_rates = (at::arange(lanes, doubles) * 0.03 + 0.02).to(setup.type),
              .step = at::zeros({1}, doubles),
              .schedule = {.steps = 100}};
    update.set_groups(groups);
  }

  // The same for all lanes.
  void set_clip_norm(double norm) {
    inputs.clip_norms = at::full({num_lanes()}, norm, at::TensorOptions(at::kDouble).device(setup.device));
  }
  void set_steps_left(double steps) const { inputs.step.fill_(inputs.schedule.steps - steps); }

  int64_t num_lanes() const { return std::ssize(setup.shapes[0].lanes); }
  void fill(const at::Tensor& to, int step) {
    torch::manual_seed(static_cast<uint64_t>(step * 1000 + num_filled++));
    to.copy_(at::randn(to.sizes(), at::kDouble));
  }
  void draw_gradients(int step) {
    num_filled = 0;
    for (const LaneParameter& parameter : owned) fill(parameter.gradient(), step);
  }
  at::Tensor gradient(size_t group, int64_t entry, size_t parameter = 0) const {
    return groups[group].parameters[parameter]->gradient().select(0, entry);
  }
  // The end of the last gradient alone.
  void poison(size_t group, int64_t entry, double value = kNaN) const {
    gradient(group, entry, groups[group].parameters.size() - 1).select(0, -1).fill_(value);
  }

  void run() { update.run(inputs, sums); }
  void run_plainly() { update.run_plainly(inputs, sums); }

  // All that one entry is: values, compute copies, momentum, age; copies of them.
  Tensors entry(size_t group, int64_t entry) const {
    Tensors all;
    const UpdatedGroup& own = groups[group];
    for (size_t i = 0; i < own.parameters.size(); ++i) {
      all.push_back(own.parameters[i]->value().detach()[entry].clone());
      all.push_back(own.parameters[i]->compute()[entry].clone());
      if (setup.sgd.momentum > 0) all.push_back(own.optimizer->momentum(i)[entry].clone());
    }
    if (own.optimizer->ages().defined()) all.push_back(own.optimizer->ages()[entry].clone());
    return all;
  }
  // By group and entry.
  std::vector<std::vector<Tensors>> all_entries() const {
    std::vector<std::vector<Tensors>> all;
    for (size_t g = 0; g < groups.size(); ++g) {
      all.emplace_back();
      for (int64_t e = 0; e < std::ssize(groups[g].lanes); ++e) all.back().push_back(entry(g, e));
    }
    return all;
  }

  NetworkOptions setup;
  std::deque<LaneParameter> owned;
  std::deque<LaneSGD> optimizers;
  std::vector<UpdatedGroup> groups;
  UpdateInputs inputs;
  UpdateSums sums;
  GroupUpdate update;
  int num_filled = 0;
};

inline void expect_same_entry(const Tensors& got, const Tensors& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    expect_same_bits(got[i], want[i], what + ", tensor " + std::to_string(i));
}

// Loss scales, and gradients as they are of losses that were multiplied with them.
inline void set_scales(Networks& networks, const std::vector<double>& scales, double smallest) {
  networks.inputs.scales = at::tensor(scales).to(at::kFloat).to(networks.setup.device);
  networks.inputs.smallest_scale = smallest;
  for (const UpdatedGroup& group : networks.groups)
    for (size_t e = 0; e < group.lanes.size(); ++e)
      for (const LaneParameter* parameter : group.parameters)
        if (group.lanes[e] >= 0)
          parameter->gradient()[static_cast<int64_t>(e)].mul_(scales[static_cast<size_t>(group.lanes[e])]);
}

inline std::vector<double> numbers(const at::Tensor& of) {
  const at::Tensor all = of.cpu().to(at::kDouble);
  return {all.data_ptr<double>(), all.data_ptr<double>() + all.numel()};
}

}  // namespace espalier::lanes::testing
