// SGD and AdamW over stacked parameters, every lane on its own.
//
// Kept true:
// - A lane's update depends on that lane's values alone. Only operations that are rounded once (+, -, *, /,
//   sqrt, selection) are used, so its bits depend neither on the number of lanes nor on how a vector loop
//   cuts them.
// - Nothing is read on the host, and what changes from step to step or is another for every lane (learning
//   rates, decay, momentum, step counts, frozen lanes) is a device tensor at a fixed address: a captured step
//   stays right when it is replayed.
// - State lies in memory as its parameter does, and like it never moves.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "espalier/lanes/optim/rate_curve.h"
#include "espalier/lanes/parameter.h"

namespace espalier::lanes {

// What both optimisers share.
class LaneOptimizer {
 public:
  // parameters: P x [L,...], one type and device; they outlive the optimiser and stay where they are.
  LaneOptimizer(std::vector<LaneParameter*> parameters, double learning_rate, double weight_decay);
  virtual ~LaneOptimizer() = default;

  // Updates every lane that is not frozen (and is named by the mask [L] bool, where one is given); the others
  // keep parameters, state and step count bit for bit, whatever their gradients hold. Compute copies follow.
  void step(const at::Tensor& lanes = {});

  // Lanes named by [L] bool forget their state, as if they had never made a step.
  void reset(const at::Tensor& lanes);

  // Called where the parameters now show another number of entries: the state shows as many, and never moves.
  virtual void use_lanes(int64_t lanes);

  const std::vector<LaneParameter*>& parameters() const { return parameters_; }
  // All that a checkpoint has to keep besides parameters, options and frozen lanes: P tensors of
  // each kind that add_parameter_state() adds, one of each that add_lane_state() adds.
  const std::vector<at::Tensor>& state() const { return state_; }

  at::Tensor learning_rates;  // [L], the parameters' type; written in place
  at::Tensor weight_decays;   // [L] f64, rounded to the parameters' type where it is used; written in place
  at::Tensor frozen;          // [L] bool; written in place

 protected:
  // Updates all parameters where apply [L] bool says.
  virtual void update(const at::Tensor& apply) = 0;

  // Adds a kind of state, values that reset() puts back to `initial`: shaped like every parameter, or
  // one f64 per lane. Returns its place in state().
  size_t add_parameter_state(double initial);
  size_t add_lane_state(double initial);

  // All lanes and those in use of the state at a place.
  const at::Tensor& state_at(size_t place) const { return state_[place]; }

 private:
  void add(const at::Tensor& storage, double initial);

  std::vector<LaneParameter*> parameters_;
  at::Tensor rates_storage_;               // [all]
  at::Tensor decays_storage_;              // [all]
  at::Tensor frozen_storage_;              // [all]
  std::vector<at::Tensor> state_storage_;  // [all,...]
  std::vector<at::Tensor> state_;          // [L,...]: the first entries of the storage
  std::vector<double> initial_;
};

// The values that all lanes begin with.
struct LaneSgdOptions {
  double learning_rate = 0.1;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double rate_factor = 1;  // what learning_rates are multiplied with
  // Steps over which a lane's rate rises, counted from its first, or from its first after a reset: step k,
  // from 0, has min(1, (k + 0.5) / warm_up_steps) of it. 0: no warm-up.
  int64_t warm_up_steps = 0;
  // Curve of a lane's rate over its own steps, from its first to the end of the run. Without one the rate is
  // as it is given.
  std::optional<RateCurve> curve = {};
};

class LaneSGD final : public LaneOptimizer {
 public:
  LaneSGD(std::vector<LaneParameter*> parameters, const LaneSgdOptions& options);

  const LaneSgdOptions& options() const { return options_; }
  RateShare share() const;                      // what rates are multiplied with
  at::Tensor momentum(size_t parameter) const;  // [L,...]; undefined without
  at::Tensor ages() const;  // [L] f64: steps made; undefined where rates do not depend on them

  // [1] f64, where rates follow a curve: steps left, counting the next; set by the caller.
  at::Tensor steps_left;
  // [L] f64, rounded as decays are; written in place. Has no effect where the options have no momentum.
  at::Tensor momentum_factors;

  void use_lanes(int64_t lanes) override;

 private:
  void update(const at::Tensor& apply) override;

  LaneSgdOptions options_;
  at::Tensor momentum_storage_;  // [all] f64: factors
  size_t momenta_ = 0;           // place of P x [L,...]; unused without momentum
  size_t ages_ = 0;              // place of [L] f64: steps made; unused where rates do not depend on them
};

// The values that all lanes begin with.
struct LaneAdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

// Loshchilov and Hutter, arXiv 1711.05101, as torch computes it.
class LaneAdamW final : public LaneOptimizer {
 public:
  LaneAdamW(std::vector<LaneParameter*> parameters, const LaneAdamWOptions& options);

 private:
  void update(const at::Tensor& apply) override;

  LaneAdamWOptions options_;
  size_t means_ = 0;    // place of P x [L,...]
  size_t squares_ = 0;  // place of P x [L,...]
  // beta^steps, in double, multiplied on: pow() rounds differently in a vector and at its tail.
  size_t beta1_power_ = 0;  // place of [L] f64
  size_t beta2_power_ = 0;  // place of [L] f64
};

}  // namespace espalier::lanes
