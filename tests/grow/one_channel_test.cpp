// Hosts, seeds and populations whose images have one channel or one pixel, given in every layout that a
// tensor may have: outputs and all gradients are those of plain torch, in both memory formats.
#include "espalier/grow/blend/op.h"
#include "espalier/grow/seeds/branch.h"
#include "espalier/grow/seeds/modules.h"
#include "tests/grow/grown_stack.h"
#include "tests/lanes/layouts.h"
#include "tests/support/cuda.h"

namespace espalier::grow {
namespace {

using lanes::testing::dense_layouts;
using lanes::testing::distance;
using lanes::testing::every_layout;
using lanes::testing::Laid;
using lanes::testing::laid_in;
using lanes::testing::largest;
using lanes::testing::random_lanes;
using lanes::testing::Tensors;
using testing::PlainNetwork;
using testing::States;
using testing::Values;

constexpr MemoryFormat kFormats[] = {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous};

void expect_close(const at::Tensor& got, const at::Tensor& want, at::ScalarType type,
                  const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  // fp32 is compared with f64: norms over few values carry the roundings of what comes before.
  EXPECT_LE(distance(got, want), (type == at::kDouble ? 1e-9 : 2e-3) * std::max(1.0, largest(want))) << what;
}

struct Case {
  CnnHostOptions host;
  int64_t batch = 3;
};

// One channel that stays one, images that shrink to a pixel, one lane, one sample.
std::vector<Case> cases(MemoryFormat format) {
  const auto host = [&](int64_t lanes, int64_t size, int64_t blocks, int64_t pooled) {
    return CnnHostOptions{.lanes = lanes,
                          .in_channels = 1,
                          .height = size,
                          .width = size,
                          .num_classes = 3,
                          .n_blocks = blocks,
                          .base_channels = 1,
                          .pool_layers = pooled,
                          .memory_format = format,
                          .seed = 31};
  };
  CnnHostOptions wide = host(2, 1, 2, 0);  // one pixel, several channels
  wide.in_channels = 3;
  wide.base_channels = 4;
  return {{host(2, 6, 2, 1)}, {host(1, 4, 3, 2)}, {host(2, 4, 2, 2), 1}, {host(1, 1, 2, 0), 4}, {wide, 4}};
}

PlainNetwork plain_lane(NetworkStack& population, const States& states, int64_t lane) {
  PlainNetwork network{.options = dynamic_cast<CnnHost&>(population.host()).options(),
                       .values = testing::copy_of_lane(population, lane),
                       .states = states.lane(lane),
                       .kinds = population.blueprints().names()};
  for (auto& [name, value] : network.values) {
    value = value.to(at::kDouble);
    if (name.find("running") == std::string::npos) value.set_requires_grad(true);
  }
  return network;
}

// A step of the population on x in every layout, and of each lane in plain torch.
void expect_plain(const Case& made, const States* given, at::ScalarType type) {
  const lanes::testing::NoWarnings quiet;
  NetworkStack population(made.host, BlueprintRegistry(), at::kCPU, type);
  const States states = given ? *given : States(made.host.lanes, population.num_slots());
  population.apply(states.all);
  if (given) testing::randomise_seeds(population);
  const at::Tensor values = testing::images_for(population, made.batch, type);
  const at::Tensor weights = at::randn({made.batch, made.host.num_classes}, at::kDouble).to(type);
  std::vector<PlainNetwork> plain;
  Tensors want, grad_inputs;
  for (int64_t lane = 0; lane < made.host.lanes; ++lane) {
    PlainNetwork& network = plain.emplace_back(plain_lane(population, states, lane));
    const at::Tensor x = values.select(0, lane).to(at::kDouble).clone().set_requires_grad(true);
    want.push_back(network.forward(x));
    (want.back() * weights.to(at::kDouble)).sum().backward();
    grad_inputs.push_back(x.grad());
  }
  for (const Laid& laid : every_layout(values)) {
    SCOPED_TRACE(fmt::format("{} in {}, {}", laid.name, lanes::testing::name_of(made.host.memory_format),
                             c10::Join("x", values.sizes().vec())));
    const at::Tensor x = laid.tensor.detach().set_requires_grad(true);
    const at::Tensor logits = population.forward(x, lanes::Mode::kTrain);
    const at::Tensor losses = (logits * weights).sum({1, 2});
    const at::Tensor grad_x =
        torch::autograd::grad({losses}, {x}, {at::ones_like(losses)}, /*retain_graph=*/true)[0];
    lanes::lane_backward(losses, population.parameters());
    for (int64_t lane = 0; lane < made.host.lanes; ++lane) {
      const auto l = static_cast<size_t>(lane);
      expect_close(logits.select(0, lane), want[l], type, "logits");
      expect_close(grad_x.select(0, lane), grad_inputs[l], type, "gradient of x");
      for (const auto& [name, got] : testing::gradients_of_lane(population, lane)) {
        const at::Tensor grad = plain[l].values.at(name).grad();
        expect_close(got, grad.defined() ? grad : at::zeros_like(got), type, name);
      }
    }
  }
}

TEST(OneChannel, HostsEqualPlainTorchInEveryLayout) {
  for (const MemoryFormat format : kFormats)
    for (const auto type : {at::kDouble, at::kFloat})
      for (const Case& made : cases(format)) expect_plain(made, nullptr, type);
}

TEST(OneChannel, PopulationsEqualPlainTorchWithSeedsOfEveryBlueprint) {
  const int32_t blueprints = BlueprintRegistry().size();
  for (const MemoryFormat format : kFormats)
    for (const auto type : {at::kDouble, at::kFloat})
      for (Case made : cases(format)) {
        // In f32 a group of one value is all rounding: seeds of one channel at one pixel are left to f64.
        if (type == at::kFloat && made.host.height == 1) continue;
        made.host.lanes = blueprints;
        const auto slots = static_cast<int64_t>(slots_by_action(made.host).size());
        States states(blueprints, slots);
        for (int32_t lane = 0; lane < blueprints; ++lane)
          for (int64_t slot = 0; slot < slots; ++slot)
            states.at(lane, slot) =
                testing::seed_in(SeedStage::kBlending, (lane + static_cast<int32_t>(slot)) % blueprints, 0.5f,
                                 static_cast<BlendOperator>((lane + slot) % 3));
        expect_plain(made, &states, type);
      }
}

// A step in bf16, whose kernels read strides of their own: logits, the input's gradient and all parameters'.
Tensors step_of(NetworkStack& population, const at::Tensor& x, const at::Tensor& weights) {
  const at::Tensor logits = population.forward(x, lanes::Mode::kTrain);
  const at::Tensor losses = (logits * weights).sum({1, 2});
  Tensors all{logits,
              torch::autograd::grad({losses}, {x}, {at::ones_like(losses)}, /*retain_graph=*/true)[0]};
  lanes::lane_backward(losses, population.parameters());
  for (const lanes::LaneParameter* parameter : population.parameters())
    all.push_back(parameter->gradient().clone());
  return all;
}

TEST(OneChannelCuda, NetworksGiveTheSameBitsInEveryLayout) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const lanes::testing::NoWarnings quiet;
  const at::Device device = espalier::testing::kIsEmulated ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
  const int32_t blueprints = BlueprintRegistry().size();
  for (const bool grows : {false, true})
    for (Case made : cases(MemoryFormat::kChannelsLast)) {
      if (grows) made.host.lanes = blueprints;
      NetworkStack population(made.host, BlueprintRegistry(), device, at::kBFloat16);
      States states(made.host.lanes, population.num_slots());
      if (grows)
        for (int32_t lane = 0; lane < blueprints; ++lane)
          for (int64_t slot = 0; slot < population.num_slots(); ++slot)
            states.at(lane, slot) =
                testing::seed_in(SeedStage::kBlending, (lane + static_cast<int32_t>(slot)) % blueprints, 0.5f,
                                 static_cast<BlendOperator>((lane + slot) % 3));
      population.apply(states.all);
      if (grows) testing::randomise_seeds(population);
      const at::Tensor values = testing::images_for(population, made.batch, at::kBFloat16).to(device);
      const at::Tensor weights =
          at::randn({made.batch, made.host.num_classes}, at::kDouble).to(at::kFloat).to(device);
      Tensors first;
      for (const Laid& laid : every_layout(values)) {
        SCOPED_TRACE(fmt::format("{}, {}, grows {}", laid.name, c10::Join("x", values.sizes().vec()), grows));
        const Tensors got = step_of(population, laid.tensor.detach().set_requires_grad(true), weights);
        if (first.empty()) first = got;
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_TRUE(at::equal(got[i].nan_to_num(77), first[i].nan_to_num(77))) << i;
      }
      if (grows) continue;
      for (int64_t lane = 0; lane < made.host.lanes; ++lane) {
        PlainNetwork plain = plain_lane(population, states, lane);
        for (auto& [name, value] : plain.values) value = value.detach().cpu();
        const at::Tensor want = plain.forward(values.select(0, lane).cpu().to(at::kDouble));
        EXPECT_LE(distance(first[0].select(0, lane).cpu(), want), 0.1 * std::max(1.0, largest(want)));
      }
    }
}

// Every blueprint alone, on what it is given in every dense layout.
TEST(OneChannel, SeedsEqualPlainTorchInEveryLayout) {
  for (const MemoryFormat format : kFormats)
    for (const Blueprint& blueprint : built_in_blueprints())
      for (const SeedShape& shape :
           {SeedShape{1, 5, 4}, SeedShape{1, 1, 1}, SeedShape{8, 1, 1}, SeedShape{16, 1, 1}}) {
        torch::manual_seed(shape.channels);
        const auto module = blueprint.make(
            {.shape = shape, .entries = 2, .options = at::kDouble, .compute = at::kDouble, .format = format});
        for (const auto& named : module->parameters()) {
          named.parameter->set_format(format);
          named.parameter->storage().copy_(at::randn(named.parameter->storage().sizes(), at::kDouble) * 0.5);
        }
        const at::Tensor values = random_lanes({2, 3, shape.channels, shape.height, shape.width});
        const at::Tensor grad = random_lanes(values.sizes());
        const std::vector<Laid> layouts = dense_layouts(values), grads = dense_layouts(grad);
        for (size_t i = 0; i < layouts.size(); ++i)
          for (const size_t j : {i, (i + 3) % grads.size()}) {
            const Laid &laid = layouts[i], &sent = grads[j];
            SCOPED_TRACE(fmt::format("{} of {} channels, {} pixels, in {}: {}, gradient {}", blueprint.name,
                                     shape.channels, shape.height * shape.width,
                                     lanes::testing::name_of(format), laid.name, sent.name));
            const at::Tensor x = laid.tensor.detach().set_requires_grad(true);
            // A noop hands its input on.
            const at::Tensor out = module->forward(x * 1, lanes::Mode::kTrain);
            Tensors wanted{x};
            for (const auto& named : module->parameters()) wanted.push_back(named.parameter->value());
            const auto got = torch::autograd::grad({out}, wanted, {sent.tensor});
            for (int64_t entry = 0; entry < 2; ++entry) {
              Values own;
              const at::Tensor own_x = values.select(0, entry).clone().set_requires_grad(true);
              Tensors leaves{own_x};
              for (const auto& named : module->parameters())
                leaves.push_back(
                    own[named.name] =
                        named.parameter->value().detach().select(0, entry).clone().set_requires_grad(true));
              const at::Tensor want = testing::plain_seed(blueprint.name, {own, ""}, own_x);
              expect_close(out.select(0, entry), want, at::kDouble, "output");
              const auto expected = torch::autograd::grad({want}, leaves, {grad.select(0, entry)});
              for (size_t k = 0; k < expected.size(); ++k)
                expect_close(got[k].select(0, entry), expected[k], at::kDouble,
                             "gradient " + std::to_string(k));
            }
          }
      }
}

// Blending a host and seeds that lie differently, one lane isolated, one gated.
TEST(OneChannel, BlendsRightInEveryLayout) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{2, 3, 1, 5, 4}, {2, 3, 4, 1, 1}, {2, 1, 1, 3, 3}, {2, 1, 1, 1, 1}}) {
    torch::manual_seed(7);
    const BlendTable table{
        .entries = at::tensor({1, 0}, at::kLong),
        .entry_of_lane = at::tensor({1, 0}, at::kLong),
        .amplitude = at::tensor({0.25f, 0.75f}),
        .blend_operator = at::tensor(
            {static_cast<int>(BlendOperator::kMultiply), static_cast<int>(BlendOperator::kGate)}, at::kByte),
        .isolated = at::zeros({2}, at::kBool)};
    const at::Tensor h = random_lanes(sizes), seeds = random_lanes(sizes), grad = random_lanes(sizes);
    const at::Tensor gates = random_lanes({2, sizes[1]}).sigmoid_();
    const auto leaf = [](const at::Tensor& t) { return t.detach().set_requires_grad(true); };
    const at::Tensor own_h = leaf(h.clone()), own_s = leaf(seeds.clone()), own_g = leaf(gates.clone());
    const at::Tensor first = own_h[0] * (1 + 0.25 * at::tanh(own_s[1] - own_h[0]));
    const at::Tensor second = own_h[1] + 0.75 * own_g[0].view({-1, 1, 1, 1}) * (own_s[0] - own_h[1]);
    const at::Tensor want = at::stack({first, second});
    const auto expected = torch::autograd::grad({want}, {own_h, own_s, own_g}, {grad});
    const std::vector<Laid> grad_h = dense_layouts(h), grad_seeds = dense_layouts(seeds),
                            laid_grads = dense_layouts(grad);
    for (size_t i = 0; i < grad_h.size(); ++i)
      for (size_t j = 0; j < grad_seeds.size(); ++j)
        for (const bool is_transposed : {false, true}) {
          const Laid &a = grad_h[i], &b = grad_seeds[j], &sent = laid_grads[(i + j) % laid_grads.size()];
          SCOPED_TRACE(a.name + "; " + b.name + "; " + sent.name + " " + c10::Join("x", sizes));
          const at::Tensor laid_h = leaf(a.tensor), laid_s = leaf(b.tensor),
                           g = leaf(is_transposed ? gates.t().contiguous().t() : gates);
          const at::Tensor out = lane_blend(laid_h, laid_s, g, table);
          expect_close(out, want, at::kDouble, "out");
          const auto got = torch::autograd::grad({out}, {laid_h, laid_s, g}, {sent.tensor});
          for (size_t k = 0; k < got.size(); ++k)
            expect_close(got[k], expected[k], at::kDouble, "gradient " + std::to_string(k));
          const SelectedAll selected = lane_select(laid_h, std::vector{table});
          expect_close(selected.inputs[0], at::stack({h[1], h[0]}), at::kDouble, "selected");
        }
  }
}

}  // namespace
}  // namespace espalier::grow
