#include "espalier/core/seed_stage.h"
#include "espalier/grow/blend/op.h"
#include "espalier/grow/seeds/branch.h"
#include "espalier/lanes/stack.h"
#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"

namespace espalier::grow {
namespace {

using lanes::testing::distance;
using lanes::testing::expect_same_bits;
using lanes::testing::largest;
using lanes::testing::stacked_copy;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The stacks of one slot, on the CPU. Seven lanes: 0 holds none; 1 ADD, 2 MULTIPLY and 3 GATE are blended; 4
// is isolated, 5 has amplitude 0, 6 amplitude -0; all of those in the first stack but 2 and 4.
struct Case {
  std::vector<Grown> stacks;
  at::Tensor h, grad;  // [7,B,C,H,W]

  Case(at::IntArrayRef sample, at::ScalarType type) {  // sample: B,C,H,W
    const auto images = [&](int64_t lanes) {
      std::vector<int64_t> sizes{lanes};
      sizes.insert(sizes.end(), sample.begin(), sample.end());
      return stacked_copy(at::randn(sizes, at::kDouble), type);
    };
    h = images(7);
    grad = images(7);
    const BlendTable slot{.amplitude = at::tensor({.9f, .25f, .5f, .75f, 1.f, 0.f, -0.f}),
                          .blend_operator = at::tensor({0, 0, 1, 2, 1, 2, 0}, at::kByte),
                          .isolated = at::tensor({0, 0, 0, 0, 1, 0, 0}, at::kLong) != 0};
    for (const std::vector<int64_t>& lanes : {std::vector<int64_t>{3, -1, 5, 1, 6}, {-1, 4, 2}}) {
      BlendTable table = slot;
      table.entries = at::tensor(lanes, at::kLong);
      table.entry_of_lane = at::full({7}, -1, at::kLong);
      for (size_t entry = 0; entry < lanes.size(); ++entry)
        if (lanes[entry] >= 0) table.entry_of_lane[lanes[entry]] = static_cast<int64_t>(entry);
      const auto entries = std::ssize(lanes);
      const auto wide = type == at::kDouble ? at::kDouble : at::kFloat;
      stacks.push_back({images(entries),
                        stacks.empty() ? stacked_copy(at::rand({entries, sample[0]}), wide) : at::Tensor(),
                        table});
      for (int64_t entry = 0; entry < entries; ++entry)
        if (lanes[static_cast<size_t>(entry)] < 0) stacks.back().seeds.select(0, entry).fill_(kNan);
    }
  }
};

at::Tensor on(const at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || device.is_cpu()) return tensor;
  if (!tensor.is_floating_point() || tensor.dim() < 2) return tensor.to(device);
  const at::Tensor copy =
      lanes::zero_lanes(tensor.sizes(), tensor.options().device(device),
                        tensor.dim() == 5 ? lanes::format_of(tensor) : MemoryFormat::kChannelsLast);
  copy.copy_(tensor);
  return copy;
}

BlendTable on(const BlendTable& table, at::Device device) {
  return {on(table.entries, device), on(table.entry_of_lane, device), on(table.amplitude, device),
          on(table.blend_operator, device), on(table.isolated, device)};
}

struct Results {
  at::Tensor out, grad_h;
  std::vector<at::Tensor> inputs, grad_seeds, grad_gates;
};

enum class Holds { kOwnCopy, kNothing };  // what a caller has of h besides handing it over
enum class Grad {
  kOfAnyLane,
  kOfTheFirst,  // for all lanes, in one memory: what a sum over lanes sends back
};

// Where the kernels run.
at::Device kernel_device() {
  return espalier::testing::kIsEmulated ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
}

// Select, what was grown, blend: forward and backward; the seeds are leaves, and send `seeds` back as the
// gradient of their input.
Results run(const Case& given, at::Device device, Holds holds = Holds::kOwnCopy,
            Grad grad = Grad::kOfAnyLane) {
  at::Tensor h = on(given.h, device).detach().set_requires_grad(true);
  std::vector<BlendTable> tables;
  std::vector<Grown> stacks;
  for (const Grown& stack : given.stacks) {
    tables.push_back(on(stack.table, device));
    const auto leaf = [&](const at::Tensor& from) {
      return from.defined() ? on(from, device).detach().set_requires_grad(true) : at::Tensor();
    };
    stacks.push_back({leaf(stack.seeds), leaf(stack.gates), tables.back()});
  }
  at::Tensor made = lane_residual(h, lanes::zero_lanes(h.sizes(), h.options().requires_grad(false)));
  const void* const place = made.data_ptr();
  SelectedAll selected = lane_select(made, tables);
  if (holds == Holds::kNothing) {
    made.reset();
    for (size_t i = 0; i < stacks.size(); ++i) stacks[i].input = selected.inputs[i];
  }
  const at::Tensor out = lane_blend(std::move(selected.through), stacks);
  EXPECT_EQ(out.data_ptr() == place, holds == Holds::kNothing);
  std::vector<at::Tensor> outputs{out}, grads{on(given.grad, device)}, leaves{h};
  if (grad == Grad::kOfTheFirst) {
    outputs[0] = (out.sum(0) * grads[0][0]).sum();
    grads[0] = at::ones_like(outputs[0]);
  }
  for (size_t i = 0; i < stacks.size(); ++i) {
    outputs.push_back(selected.inputs[i]);
    grads.push_back(stacks[i].seeds.detach());
    leaves.push_back(stacks[i].seeds);
  }
  leaves.push_back(stacks[0].gates);
  const auto got = torch::autograd::grad(outputs, leaves, grads);
  Results results{.out = out.detach(), .grad_h = got[0], .grad_gates = {got.back()}};
  for (size_t i = 0; i < stacks.size(); ++i) {
    results.inputs.push_back(selected.inputs[i].detach());
    results.grad_seeds.push_back(got[1 + i]);
  }
  return results;
}

const std::vector<std::vector<int64_t>> kSamples{{3, 8, 5, 4}, {2, 5, 3, 3},  {1, 1, 1, 1},   {33, 16, 2, 2},
                                                 {2, 1, 7, 7}, {1, 3, 31, 1}, {2, 40, 16, 16}};

// A value at a rounding's edge may fall to the other side: the device contracts products and sums.
double tolerance(at::ScalarType type) {
  return type == at::kDouble  ? 1e-12
         : type == at::kFloat ? 4 * 0x1p-23
         : type == at::kHalf  ? 0x1p-10
                              : 0x1p-7;
}

void expect_same_bits_in_place(at::Device device) {
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto& sample : kSamples) {
      SCOPED_TRACE(std::string(c10::toString(type)) + " " + c10::Join("x", sample));
      torch::manual_seed(5);
      const Case given(sample, type);
      const Results want = run(given, device), got = run(given, device, Holds::kNothing);
      expect_same_bits(got.out, want.out, "out");
      expect_same_bits(got.grad_h, want.grad_h, "gradient of h");
      for (const int64_t entry : {0, 2, 3, 4})
        expect_same_bits(got.grad_gates[0].select(0, entry), want.grad_gates[0].select(0, entry), "of gates");
      for (size_t i = 0; i < given.stacks.size(); ++i)
        for (int64_t entry = 0; entry < given.stacks[i].seeds.size(0); ++entry)
          if (given.stacks[i].table.entries[entry].item<int64_t>() >= 0)
            expect_same_bits(got.grad_seeds[i].select(0, entry), want.grad_seeds[i].select(0, entry),
                             "of seeds");
    }
}

void expect_shared_gradients_to_stay(at::Device device) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    torch::manual_seed(6);
    Case given({3, 8, 5, 4}, type);
    const Results got = run(given, device, Holds::kNothing, Grad::kOfTheFirst);
    for (int64_t lane = 1; lane < given.grad.size(0); ++lane)
      given.grad.select(0, lane).copy_(given.grad.select(0, 0));
    const Results want = run(given, device);
    expect_same_bits(got.grad_h, want.grad_h, "gradient of h");
    for (size_t i = 0; i < given.stacks.size(); ++i)
      for (int64_t entry = 0; entry < given.stacks[i].seeds.size(0); ++entry)
        if (given.stacks[i].table.entries[entry].item<int64_t>() >= 0)
          expect_same_bits(got.grad_seeds[i].select(0, entry), want.grad_seeds[i].select(0, entry),
                           "of seeds");
  }
}

// What torch's own operators make of it, lane by lane in double.
Results by_torch(const Case& given) {
  const auto in_double = [](const at::Tensor& stacked) { return stacked_copy(stacked, at::kDouble); };
  Results want{.out = in_double(given.h), .grad_h = in_double(given.grad)};
  for (const Grown& stack : given.stacks) {
    const BlendTable& table = stack.table;
    want.inputs.push_back(at::zeros_like(in_double(stack.seeds)));
    want.grad_seeds.push_back(at::zeros_like(in_double(stack.seeds)));
    want.grad_gates.push_back(at::zeros({stack.seeds.size(0), stack.seeds.size(1)}, at::kDouble));
    for (int64_t entry = 0; entry < stack.seeds.size(0); ++entry) {
      const int64_t lane = table.entries[entry].item<int64_t>();
      if (lane < 0) continue;
      const auto leaf = [](const at::Tensor& from) {
        return from.to(at::kDouble).clone().set_requires_grad(true);
      };
      const at::Tensor h = leaf(given.h.select(0, lane)), s = leaf(stack.seeds.select(0, entry)),
                       grad = given.grad.select(0, lane).to(at::kDouble);
      const at::Tensor g = leaf(stack.gates.defined() ? stack.gates.select(0, entry) : at::ones({h.size(0)}));
      const double a = table.amplitude[lane].item<double>();
      const bool is_isolated = table.isolated[lane].item<bool>();
      const auto chosen = static_cast<BlendOperator>(table.blend_operator[lane].item<int64_t>());
      const at::Tensor weight = chosen == BlendOperator::kGate ? a * g.view({-1, 1, 1, 1}) : at::full({}, a);
      at::Tensor out =
          chosen == BlendOperator::kMultiply ? h * (1 + a * at::tanh(s - h)) : h + weight * (s - h);
      if (is_isolated) out = h + (s - s.detach());
      const auto grads = torch::autograd::grad({out}, {h, s, g}, {grad}, std::nullopt, /*create_graph=*/false,
                                               /*allow_unused=*/true);
      want.out.select(0, lane).copy_(out.detach());
      want.inputs.back().select(0, entry).copy_(h.detach());
      want.grad_h.select(0, lane).copy_(is_isolated ? grads[0] : grads[0] + s.detach());
      want.grad_seeds.back().select(0, entry).copy_(grads[1]);
      if (grads[2].defined()) want.grad_gates.back().select(0, entry).copy_(grads[2]);
    }
  }
  return want;
}

void expect_to_equal_torch(at::Device device) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
    for (const auto& sample : kSamples) {
      SCOPED_TRACE(std::string(c10::toString(type)) + " " + c10::Join("x", sample));
      torch::manual_seed(5);
      const Case given(sample, type);
      const Results want = by_torch(given), got = run(given, device);
      const auto expect_close = [&](const at::Tensor& ours, const at::Tensor& theirs, const char* what) {
        EXPECT_LE(distance(ours.cpu(), theirs), tolerance(type) * std::max(1.0, largest(theirs))) << what;
      };
      expect_close(got.out, want.out, "out");
      expect_close(got.grad_h, want.grad_h, "gradient of h");
      for (const int64_t lane : {0, 4, 5, 6})
        expect_same_bits(got.out.select(0, lane).cpu(), given.h.select(0, lane), "a lane that passes");
      for (const int64_t lane : {0, 4})
        expect_same_bits(got.grad_h.select(0, lane).cpu(), given.grad.select(0, lane), "its gradient");
      for (size_t i = 0; i < given.stacks.size(); ++i) {
        EXPECT_EQ(got.inputs[i].strides(), given.stacks[i].seeds.strides());
        EXPECT_EQ(got.grad_seeds[i].strides(), given.stacks[i].seeds.strides());
        for (int64_t entry = 0; entry < given.stacks[i].seeds.size(0); ++entry) {
          const int64_t lane = given.stacks[i].table.entries[entry].item<int64_t>();
          if (lane < 0) continue;
          expect_same_bits(got.inputs[i].select(0, entry).cpu(), given.h.select(0, lane), "input");
          expect_close(got.grad_seeds[i].select(0, entry), want.grad_seeds[i].select(0, entry), "of seeds");
          if (i > 0) continue;
          // A sum of C H W products in f32, of f64's result.
          const at::Tensor grad_gate = want.grad_gates[0].select(0, entry);
          const double bar =
              type == at::kDouble ? 1e-12 : 0x1p-20 * static_cast<double>(given.h[0][0].numel());
          EXPECT_LE(distance(got.grad_gates[0].select(0, entry).cpu(), grad_gate), bar)
              << "of gates " << entry;
        }
      }
      EXPECT_EQ(got.out.strides(), given.h.strides());
      EXPECT_EQ(got.grad_h.strides(), given.h.strides());
    }
}

void expect_passing(at::Device device) {
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const double poison : {kNan, std::numeric_limits<double>::infinity()}) {
      Case given({3, 8, 3, 3}, type);
      for (const Grown& stack : given.stacks) {
        stack.seeds.fill_(poison);
        if (stack.gates.defined()) stack.gates.fill_(poison);
      }
      const Results got = run(given, device);
      for (const int64_t lane : {0, 4, 5, 6})
        expect_same_bits(got.out.select(0, lane).cpu(), given.h.select(0, lane), "out");
      expect_same_bits(got.grad_h.select(0, 0).cpu(), given.grad.select(0, 0), "gradient of a host without");
      expect_same_bits(got.grad_h.select(0, 4).cpu(), given.grad.select(0, 4),
                       "gradient of an isolated host");
      expect_same_bits(got.grad_seeds[1].select(0, 1).cpu(), given.grad.select(0, 4), "of an isolated seed");
      EXPECT_EQ(largest(got.grad_seeds[0].select(0, 2)), 0) << "at amplitude 0";
      EXPECT_EQ(largest(got.grad_seeds[0].select(0, 4)), 0) << "left out";
      for (const int64_t entry : {2, 3, 4})
        EXPECT_EQ(largest(got.grad_gates[0].select(0, entry)), 0) << entry;
    }
}

void expect_others_to_stay_finite(at::Device device) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const Case healthy({3, 8, 5, 3}, type);
    Case sick = healthy;
    for (at::Tensor* each : {&sick.h, &sick.grad}) {
      *each = stacked_copy(*each, type);
      each->select(0, 2).fill_(kNan);
    }
    const Results want = run(healthy, device), got = run(sick, device);
    for (const int64_t lane : {0, 1, 3, 4, 5, 6}) {
      expect_same_bits(got.out.select(0, lane), want.out.select(0, lane), "out");
      expect_same_bits(got.grad_h.select(0, lane), want.grad_h.select(0, lane), "of h");
    }
    for (const int64_t entry : {0, 2, 3, 4})
      expect_same_bits(got.grad_seeds[0].select(0, entry), want.grad_seeds[0].select(0, entry), "of seeds");
    expect_same_bits(got.grad_seeds[1].select(0, 1), want.grad_seeds[1].select(0, 1), "of seeds");
  }
}

void expect_same_bits_again(at::Device device) {
  Case given({4, 8, 6, 5}, at::kBFloat16);
  const Results first = run(given, device), again = run(given, device);
  expect_same_bits(again.out, first.out, "out");
  expect_same_bits(again.grad_gates[0].select(0, 0), first.grad_gates[0].select(0, 0), "of gates");
  const auto as_planes = [](at::Tensor& tensor) {
    const at::Tensor planes = lanes::empty_lanes(tensor.sizes(), tensor.options(), MemoryFormat::kContiguous);
    planes.copy_(tensor);
    tensor = planes;
  };
  as_planes(given.h);
  as_planes(given.grad);
  for (Grown& stack : given.stacks) as_planes(stack.seeds);
  const Results planes = run(given, device);
  expect_same_bits(planes.out, first.out, "out of planes");
  expect_same_bits(planes.grad_h, first.grad_h, "of h of planes");
  EXPECT_EQ(planes.grad_h.strides(), given.h.strides());
}

// More stacks than one launch takes: lane i holds its seed in stack i.
void expect_any_number_of_stacks(at::Device device) {
  constexpr int64_t kLanes = 11;
  const at::Tensor h = on(stacked_copy(at::randn({kLanes, 2, 8, 3, 3}), at::kFloat), device);
  std::vector<BlendTable> tables;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    at::Tensor entry_of_lane = at::full({kLanes}, -1, at::kLong);
    entry_of_lane[lane] = 0;
    tables.push_back({.entries = at::full({1}, lane, at::kLong).to(device),
                      .entry_of_lane = entry_of_lane.to(device),
                      .amplitude = at::full({kLanes}, 0.5f).to(device),
                      .blend_operator = at::zeros({kLanes}, at::kByte).to(device),
                      .isolated = at::zeros({kLanes}, at::kBool).to(device)});
  }
  const SelectedAll selected = lane_select(h, tables);
  std::vector<Grown> stacks;
  for (size_t i = 0; i < tables.size(); ++i) stacks.push_back({selected.inputs[i] * 3, {}, tables[i]});
  EXPECT_LE(distance(lane_blend(selected.through, stacks), h * 2), 1e-5);
}

TEST(LaneBlendStacks, HasTheSameBitsWhereItWritesOverWhatNobodyElseHolds) {
  expect_same_bits_in_place(at::kCPU);
}
TEST(LaneBlendStacksCuda, HasTheSameBitsWhereItWritesOverWhatNobodyElseHolds) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_same_bits_in_place(kernel_device());
}

TEST(LaneBlendStacks, WritesOverNoGradientThatLanesShare) {
  expect_shared_gradients_to_stay(at::kCPU);
}
TEST(LaneBlendStacksCuda, WritesOverNoGradientThatLanesShare) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_shared_gradients_to_stay(kernel_device());
}

TEST(LaneBlendStacks, EqualsTorchForStacksOfEveryKindAndSize) {
  expect_to_equal_torch(at::kCPU);
}
TEST(LaneBlendStacksCuda, EqualsTorchForStacksOfEveryKindAndSize) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_to_equal_torch(kernel_device());
}

TEST(LaneBlendStacks, PassesWhatIsNotBlendedWhateverTheSeedIs) {
  expect_passing(at::kCPU);
}
TEST(LaneBlendStacksCuda, PassesWhatIsNotBlendedWhateverTheSeedIs) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_passing(kernel_device());
}

TEST(LaneBlendStacks, LeavesOtherLanesBitsWhereOneIsNotFinite) {
  expect_others_to_stay_finite(at::kCPU);
}
TEST(LaneBlendStacksCuda, LeavesOtherLanesBitsWhereOneIsNotFinite) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_others_to_stay_finite(kernel_device());
}

TEST(LaneBlendStacks, GivesTheSameBitsAgainAndInNchwToo) {
  expect_same_bits_again(at::kCPU);
}
TEST(LaneBlendStacksCuda, GivesTheSameBitsAgainAndInNchwToo) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_same_bits_again(kernel_device());
}

TEST(LaneBlendStacks, TakesAnyNumberOfStacks) {
  expect_any_number_of_stacks(at::kCPU);
}
TEST(LaneBlendStacksCuda, TakesAnyNumberOfStacks) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_any_number_of_stacks(kernel_device());
}

}  // namespace
}  // namespace espalier::grow
