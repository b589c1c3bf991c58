// The contracts of a stacked layer, as checks over any layer: equal to torch lane by lane, lanes that never
// mix, channels-last lanes, a lane among many equal to the lane alone, gradients equal to finite differences.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "espalier/lanes/conv/choice.h"
#include "espalier/lanes/parameter.h"
#include "espalier/lanes/stack.h"
#include "espalier/tensor/layout.h"
#include "tests/support/cuda.h"
#include "tests/support/stacked_layout.h"

namespace espalier::lanes::testing {

using Tensors = std::vector<at::Tensor>;

// inputs: stacked, [L,...], floats in f64; undefined ones stay so, others than floats (masks, labels) have no
// gradient. stacked() takes all lanes, torch() the inputs of one lane without the lane axis.
struct Layer {
  std::function<at::Tensor(const Tensors&)> stacked;
  std::function<at::Tensor(const Tensors&)> torch;
  Tensors inputs;

  int64_t lanes() const { return inputs[0].size(0); }
};

// Where layers are compared. The CPU, unless an OnCuda lives.
inline c10::Device& test_device() {
  static c10::Device device = c10::kCPU;
  return device;
}

// Compares on the GPU, with fp32 convolutions as exact as the CPU's.
class OnCuda {
 public:
  OnCuda() {
    if (!espalier::testing::kIsEmulated) test_device() = c10::Device(c10::kCUDA, 0);
    set_conv_choosing(ConvChoosing::kFixed);
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setDeterministicCuDNN(true);
  }
  ~OnCuda() { test_device() = c10::kCPU; }
};

// Whether layers are computed by CUDA kernels, on a GPU or emulated.
inline bool has_kernels() {
  return espalier::testing::kIsEmulated || !test_device().is_cpu();
}

// What a layer's own bits are compared in: fp32, and of kernels, which are others for each, bf16 and f16.
inline std::vector<at::ScalarType> narrow_types() {
  if (!has_kernels()) return {at::kFloat};
  return {at::kFloat, at::kBFloat16, at::kHalf};
}

// Under compute-sanitizer, where every case takes a minute (scripts/gpu-test).
inline bool is_sanitized() {
  return std::getenv("ESPALIER_FEW_SEEDS") != nullptr;
}

// How many random cases a property is tried on.
inline uint64_t num_seeds(uint64_t all) {
  return std::min<uint64_t>(all, is_sanitized() ? 3 : espalier::testing::kIsEmulated ? 8 : all);
}

// A number drawn from [low, high].
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) { torch::manual_seed(seed); }
  int64_t roll(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }

 private:
  std::mt19937_64 engine_;
};

inline at::Tensor stacked_copy(const at::Tensor& from, at::ScalarType type) {
  at::Tensor copy = zero_lanes(from.sizes(), from.options().dtype(type));
  copy.copy_(from);
  return copy;
}

inline at::Tensor random_lanes(at::IntArrayRef sizes) {
  return stacked_copy(at::randn(sizes, at::kDouble).to(test_device()), at::kDouble);
}

// Masks with at least `least` samples per lane.
inline at::Tensor random_mask(int64_t lanes, int64_t batch, int64_t least) {
  at::Tensor mask = at::rand({lanes, batch}) < 0.6;
  mask.slice(1, 0, least).fill_(true);
  return mask.to(test_device());
}

inline Tensors map(const Tensors& tensors, const std::function<at::Tensor(const at::Tensor&)>& function) {
  Tensors results;
  for (const at::Tensor& tensor : tensors)
    results.push_back(tensor.defined() ? function(tensor) : at::Tensor());
  return results;
}

// Fresh leaves of a type.
inline Tensors leaves(const Tensors& inputs, at::ScalarType type) {
  return map(inputs, [&](const at::Tensor& input) {
    if (!input.is_floating_point()) return input;
    return stacked_copy(input, type).set_requires_grad(true);
  });
}

inline Tensors select_lane(const Tensors& inputs, int64_t lane) {
  return map(inputs, [&](const at::Tensor& input) {
    const at::Tensor own = input.detach().select(0, lane).clone(c10::MemoryFormat::Preserve);
    return own.is_floating_point() ? own.set_requires_grad(true) : own;
  });
}

// The output, then the gradients of all floats for a given gradient of the output.
inline Tensors run(const std::function<at::Tensor(const Tensors&)>& layer, const Tensors& inputs,
                   const at::Tensor& grad) {
  const at::Tensor out = layer(inputs);
  Tensors wanted;
  for (const at::Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) wanted.push_back(input);
  Tensors results{out.detach()};
  // With its strides: to() would close the gaps between lanes, and bits follow alignment.
  at::Tensor sent = at::empty_strided(grad.sizes(), grad.strides(), grad.options().dtype(out.scalar_type()));
  sent.copy_(grad);
  for (const at::Tensor& result : torch::autograd::grad({out}, wanted, {sent})) results.push_back(result);
  return results;
}

// The gradient that is sent back, of the output's sizes; stacked.
inline at::Tensor output_grad(const Layer& layer) {
  const at::Tensor out = layer.stacked(leaves(layer.inputs, at::kDouble));
  return random_lanes(out.sizes());
}

// By torch, lane by lane, stacked again. On the CPU where sanitizers look on: the kernels of cuDNN and cuBLAS
// do not run under racecheck.
inline Tensors run_torch(const Layer& layer, const Tensors& inputs, const at::Tensor& grad) {
  const c10::Device where = is_sanitized() ? c10::Device(c10::kCPU) : test_device();
  const Tensors there = map(inputs, [&](const at::Tensor& input) { return input.to(where); });
  Tensors results;
  for (int64_t lane = 0; lane < layer.lanes(); ++lane) {
    const Tensors own = run(layer.torch, select_lane(there, lane), grad.select(0, lane).to(where));
    if (lane == 0)
      for (const at::Tensor& result : own)
        results.push_back(at::zeros({}, result.options().device(test_device()))
                              .expand(result.sizes())
                              .unsqueeze(0)
                              .repeat_interleave(layer.lanes(), 0));
    for (size_t i = 0; i < own.size(); ++i) results[i].select(0, lane).copy_(own[i]);
  }
  return results;
}

inline double largest(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.to(at::kDouble).abs().max().item<double>();
}

inline double distance(const at::Tensor& a, const at::Tensor& b) {
  return largest(a.to(at::kDouble) - b.to(at::kDouble));
}

// Within 1e-9 of the largest value in f64; in narrower types, an error at most twice torch's own (and at
// least one rounding of the largest value: torch may be exact by luck). Where sanitizers look on, or kernels
// are emulated, torch's error is the CPU's, who adds in another order: there f32 has some roundings more.
inline void expect_equals_torch(const Layer& layer, std::vector<at::ScalarType> types) {
  const at::Tensor grad = output_grad(layer);
  const Tensors exact = run(layer.stacked, leaves(layer.inputs, at::kDouble), grad);
  const Tensors want = run_torch(layer, layer.inputs, grad);
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(exact[i].sizes(), want[i].sizes()) << "result " << i;
    EXPECT_LE(distance(exact[i], want[i]), 1e-9 * largest(want[i])) << "result " << i;
  }
  for (const auto type : types) {
    const auto narrow = [&](const at::Tensor& t) { return t.is_floating_point() ? t.to(type) : t; };
    const auto wide = [&](const at::Tensor& t) { return t.is_floating_point() ? t.to(at::kDouble) : t; };
    const Tensors rounded = map(layer.inputs, narrow);
    const at::Tensor rounded_grad = narrow(grad);
    const Tensors truth = run_torch(layer, map(rounded, wide), wide(rounded_grad));
    const Tensors theirs = run_torch(layer, rounded, rounded_grad);
    const Tensors ours = run(layer.stacked, leaves(layer.inputs, type), rounded_grad);
    const double epsilon = type == at::kHalf                ? 0x1p-10
                           : type == at::kBFloat16          ? 0x1p-7
                           : is_sanitized()                 ? 0x1p-16
                           : espalier::testing::kIsEmulated ? 0x1p-20
                                                            : 0x1p-23;
    for (size_t i = 0; i < truth.size(); ++i)
      EXPECT_LE(distance(ours[i], truth[i]),
                std::max(2 * distance(theirs[i], truth[i]), epsilon * largest(truth[i])))
          << type << " result " << i;
  }
}

inline void expect_equals_torch(const Layer& layer) {
  std::vector<at::ScalarType> types{at::kFloat, at::kBFloat16};
  if (has_kernels()) types.push_back(at::kHalf);
  expect_equals_torch(layer, types);
}

inline void expect_same_bits(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  const auto bits = [](const at::Tensor& t) {
    at::Tensor dense = at::empty(t.sizes(), t.options());
    dense.copy_(t);
    return dense.view({-1}).view(at::kByte);
  };
  ASSERT_EQ(a.sizes(), b.sizes()) << what;
  if (a.numel() > 0) {
    EXPECT_TRUE(at::equal(bits(a), bits(b))) << what;
  }
}

// Every lane alone gives the bits that it gives among all; and the same bits come again.
inline void expect_same_alone(const Layer& layer) {
  const at::Tensor grad = output_grad(layer);
  for (const auto type : narrow_types()) {
    const Tensors all = run(layer.stacked, leaves(layer.inputs, type), grad);
    const Tensors again = run(layer.stacked, leaves(layer.inputs, type), grad);
    for (size_t i = 0; i < all.size(); ++i)
      expect_same_bits(all[i], again[i], "again, result " + std::to_string(i));
    for (int64_t lane = 0; lane < layer.lanes(); ++lane) {
      const auto cut = [&](const at::Tensor& t) {
        return stacked_copy(t.slice(0, lane, lane + 1), t.scalar_type());
      };
      const Tensors alone = run(layer.stacked, leaves(map(layer.inputs, cut), type), cut(grad));
      for (size_t i = 0; i < all.size(); ++i)
        expect_same_bits(all[i].slice(0, lane, lane + 1), alone[i],
                         "lane " + std::to_string(lane) + " result " + std::to_string(i));
    }
  }
}

// NaN and Inf in one lane of any input, or of the gradient, change no bit of another lane.
inline void expect_isolated(const Layer& layer, at::ScalarType type) {
  const int64_t sick = layer.lanes() / 2;
  const at::Tensor grad = output_grad(layer);
  const Tensors healthy = run(layer.stacked, leaves(layer.inputs, type), grad);
  for (size_t poisoned = 0; poisoned <= layer.inputs.size(); ++poisoned) {
    Tensors inputs = layer.inputs;
    at::Tensor sick_grad = grad.clone();
    at::Tensor& target = poisoned < inputs.size() ? inputs[poisoned] : sick_grad;
    if (!target.defined() || !target.is_floating_point()) continue;
    target = stacked_copy(target, at::kDouble);
    const at::Tensor values = target.select(0, sick);
    values.fill_(std::numeric_limits<double>::quiet_NaN());
    if (values.dim() > 0) values.select(0, 0).fill_(std::numeric_limits<double>::infinity());
    const Tensors results = run(layer.stacked, leaves(inputs, type), sick_grad);
    for (size_t i = 0; i < results.size(); ++i)
      for (int64_t lane = 0; lane < layer.lanes(); ++lane)
        if (lane != sick)
          expect_same_bits(results[i].select(0, lane), healthy[i].select(0, lane),
                           "input " + std::to_string(poisoned) + " result " + std::to_string(i));
  }
}

inline void expect_isolated(const Layer& layer) {
  for (const auto type : narrow_types()) expect_isolated(layer, type);
}

// Every lane is dense, aligned and, with five axes, channels-last. Strides are read outright: where C == 1 or
// H == W == 1, is_contiguous() alone would pass other orders too.
inline void expect_lane_layout(const at::Tensor& stacked, const std::string& what) {
  const at::Tensor want = empty_lanes(stacked.sizes(), stacked.options());
  EXPECT_EQ(stacked.strides(), want.strides()) << what << " of sizes " << stacked.sizes();
  if (stacked.dim() == 5) {
    EXPECT_TRUE(support::is_stacked_channels_last(stacked)) << what;
  }
}

// All that a parameter is made of.
inline void expect_lane_layout(const LaneParameter& parameter, const std::string& name) {
  expect_lane_layout(parameter.value(), name);
  expect_lane_layout(parameter.gradient(), "gradient of " + name);
  expect_lane_layout(parameter.compute(), "compute copy of " + name);
}

// The output and every gradient.
inline void expect_layout(const Layer& layer) {
  for (const auto type : narrow_types())
    for (const at::Tensor& result : run(layer.stacked, leaves(layer.inputs, type), output_grad(layer)))
      expect_lane_layout(result, "result");
}

// Gradients against central differences in double.
inline void expect_finite_differences(const Layer& layer) {
  const at::Tensor grad = output_grad(layer);
  const Tensors results = run(layer.stacked, leaves(layer.inputs, at::kDouble), grad);
  const auto value = [&](const Tensors& inputs) {
    return (layer.stacked(inputs) * grad).sum().item<double>();
  };
  constexpr double kStep = 1e-5;
  size_t result = 1;
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    if (!layer.inputs[i].defined() || !layer.inputs[i].is_floating_point()) continue;
    const at::Tensor got = results[result++].reshape({-1});
    at::Tensor numeric = at::empty_like(got);
    Tensors moved = layer.inputs;
    const at::Tensor flat = layer.inputs[i].reshape({-1});
    for (int64_t e = 0; e < flat.numel(); ++e) {
      double sides[2];
      for (const int side : {0, 1}) {
        at::Tensor shifted = flat.clone();
        shifted[e] += side == 0 ? -kStep : kStep;
        moved[i] = stacked_copy(shifted.view(layer.inputs[i].sizes()), at::kDouble);
        sides[side] = value(moved);
      }
      numeric[e] = (sides[1] - sides[0]) / (2 * kStep);
    }
    EXPECT_LE(distance(got, numeric), 1e-7 * std::max(1.0, largest(numeric))) << "input " << i;
  }
}

inline void expect_contracts(const Layer& layer) {
  expect_equals_torch(layer);
  if (is_sanitized()) return;  // the same launches, again and again
  expect_same_alone(layer);
  expect_isolated(layer);
  expect_layout(layer);
}

}  // namespace espalier::lanes::testing
