// SGD and AdamW over stacked parameters, every lane on its own.
//
// Keeps true:
// - A lane's update depends on that lane's values alone. Only operations that are rounded once (+, -, *, /,
//   sqrt, selection) are used, so its bits depend neither on the number of lanes nor on how a vector loop
//   cuts them.
// - Nothing is read on the host, and what changes from step to step (learning rates, step counts, frozen
// lanes)
//   is a device tensor at a fixed address: a captured step stays right when it is replayed.
// - State lies in memory as its parameter does.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace espalier::lanes {

// What both optimisers share.
class LaneOptimizer {
 public:
  // parameters: P x [L,...], one type and device, with gradients (make_parameter).
  explicit LaneOptimizer(std::vector<at::Tensor> parameters, double learning_rate);
  virtual ~LaneOptimizer() = default;

  // Updates every lane that is not frozen and, where a mask [L] bool is given, that it names; the others keep
  // parameters, state and step count bit for bit, whatever their gradients hold.
  void step(const at::Tensor& lanes = {});

  // Lanes named by [L] bool forget their state, as if they had never made a step.
  void reset(const at::Tensor& lanes);

  void zero_grad();  // in place: gradients stay where they are

  const std::vector<at::Tensor>& parameters() const { return parameters_; }
  // All that a checkpoint has to keep besides parameters, learning rates and frozen lanes; P tensors a kind.
  const std::vector<at::Tensor>& state() const { return state_; }

  at::Tensor learning_rates;  // [L], the parameters' type; written in place
  at::Tensor frozen;          // [L] bool; written in place

 protected:
  // One parameter's update: changes the parameter and its state only where apply [L,1,...] says.
  virtual void update(size_t parameter, const at::Tensor& apply) = 0;
  // Called before the parameters, once a step; lanes: [L] bool, those that are updated.
  virtual void count_step(const at::Tensor& /*lanes*/) {}

  // Zeros that reset() puts back to `initial`. Like the parameter, or [L].
  at::Tensor add_state(const at::Tensor& like, double initial);

  std::vector<at::Tensor> parameters_;

 private:
  std::vector<at::Tensor> state_;
  std::vector<double> initial_;
};

struct LaneSgdOptions {
  double learning_rate = 0.1;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

class LaneSGD final : public LaneOptimizer {
 public:
  LaneSGD(std::vector<at::Tensor> parameters, const LaneSgdOptions& options);

 private:
  void update(size_t parameter, const at::Tensor& apply) override;

  LaneSgdOptions options_;
  std::vector<at::Tensor> momenta_;  // P x [L,...], or none without momentum
};

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
  LaneAdamW(std::vector<at::Tensor> parameters, const LaneAdamWOptions& options);

 private:
  void update(size_t parameter, const at::Tensor& apply) override;
  void count_step(const at::Tensor& lanes) override;

  LaneAdamWOptions options_;
  std::vector<at::Tensor> means_;    // P x [L,...]
  std::vector<at::Tensor> squares_;  // P x [L,...]
  // beta^steps, in double, multiplied on: pow() rounds differently in a vector and at its tail.
  at::Tensor beta1_power_;  // [L] f64
  at::Tensor beta2_power_;  // [L] f64
};

}  // namespace espalier::lanes
