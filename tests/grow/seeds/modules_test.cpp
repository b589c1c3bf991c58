#include "espalier/grow/seeds/modules.h"

#include "espalier/lanes/active.h"
#include "tests/grow/plain_network.h"
#include "tests/lanes/compare.h"

namespace espalier::grow {
namespace {

using lanes::testing::distance;
using lanes::testing::expect_same_bits;
using lanes::testing::largest;
using lanes::testing::random_lanes;
using lanes::testing::stacked_copy;
using lanes::testing::Tensors;

SeedBuild build_for(int64_t channels, int64_t entries, at::ScalarType type) {
  return {.shape = {.channels = channels, .height = 5, .width = 4},
          .entries = entries,
          .options = at::TensorOptions(type == at::kDouble ? at::kDouble : at::kFloat),
          .compute = type};
}

// Every value random, so that nothing is zero by birth.
void randomise(SeedModule& module) {
  for (const auto& named : module.parameters()) {
    named.parameter->storage().copy_(at::randn(named.parameter->storage().sizes(), at::kDouble) * 0.5);
    named.parameter->refresh();
  }
}

// The output, then the gradients of x and of all parameters.
Tensors run(SeedModule& module, const at::Tensor& x, const at::Tensor& grad) {
  const at::Tensor leaf = stacked_copy(x, x.scalar_type()).set_requires_grad(true);
  const at::Tensor out = module.forward(leaf, lanes::Mode::kTrain);
  Tensors wanted{leaf}, results{out.detach()};
  for (const auto& named : module.parameters()) wanted.push_back(named.parameter->value());
  for (const at::Tensor& result : torch::autograd::grad({out}, wanted, {grad})) results.push_back(result);
  return results;
}

void each_blueprint(const std::function<void(const Blueprint&, int64_t)>& check) {
  for (const Blueprint& blueprint : built_in_blueprints())
    for (const int64_t channels : {8, 16, 36}) {
      SCOPED_TRACE(blueprint.name + " of " + std::to_string(channels) + " channels");
      torch::manual_seed(channels);
      check(blueprint, channels);
    }
}

TEST(SeedModules, EqualPlainTorchEntryByEntry) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    const auto module = blueprint.make(build_for(channels, 3, at::kDouble));
    randomise(*module);
    const at::Tensor x = random_lanes({3, 2, channels, 5, 4}), grad = random_lanes(x.sizes());
    const Tensors got = run(*module, x, grad);
    for (int64_t entry = 0; entry < 3; ++entry) {
      testing::Values values;
      const at::Tensor own = x.select(0, entry).clone().set_requires_grad(true);
      Tensors wanted{own};
      for (const auto& named : module->parameters())
        wanted.push_back(
            values[named.name] =
                named.parameter->value().detach().select(0, entry).clone().set_requires_grad(true));
      const at::Tensor out = testing::plain_seed(blueprint.name, {values, ""}, own);
      EXPECT_LE(distance(got[0].select(0, entry), out), 1e-9 * largest(out)) << "output";
      const auto grads = torch::autograd::grad({out}, wanted, {grad.select(0, entry)});
      for (size_t i = 0; i < grads.size(); ++i)
        EXPECT_LE(distance(got[i + 1].select(0, entry), grads[i]), 1e-9 * largest(grads[i]))
            << "gradient " << i;
    }
  });
}

TEST(SeedModules, KeepEntriesApartAndGiveEachTheBitsItHasAlone) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    const auto module = blueprint.make(build_for(channels, 3, at::kFloat));
    randomise(*module);
    const at::Tensor x = stacked_copy(random_lanes({3, 2, channels, 5, 4}), at::kFloat);
    const at::Tensor grad = stacked_copy(random_lanes(x.sizes()), at::kFloat);
    const Tensors all = run(*module, x, grad);
    const auto alone = blueprint.make(build_for(channels, 1, at::kFloat));
    for (size_t i = 0; i < module->parameters().size(); ++i)
      alone->parameters()[i].parameter->storage().copy_(
          module->parameters()[i].parameter->storage().slice(0, 2, 3));
    const auto cut = [](const at::Tensor& t) { return stacked_copy(t.slice(0, 2, 3), t.scalar_type()); };
    const Tensors one = run(*alone, cut(x), cut(grad));
    const at::Tensor sick = stacked_copy(x, at::kFloat);
    sick.select(0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
    const Tensors beside = run(*module, sick, grad);
    for (size_t i = 0; i < all.size(); ++i) {
      expect_same_bits(all[i].slice(0, 2, 3), one[i], "alone, result " + std::to_string(i));
      expect_same_bits(all[i].select(0, 2), beside[i].select(0, 2),
                       "beside NaN, result " + std::to_string(i));
    }
  });
}

TEST(SeedModules, KeepTheLayoutOfWhatTheyAreGiven) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const auto module = blueprint.make(build_for(channels, 3, type));
      randomise(*module);
      const at::Tensor x = stacked_copy(random_lanes({3, 3, channels, 5, 4}), type);
      const Tensors results = run(*module, x, stacked_copy(random_lanes(x.sizes()), type));
      for (const size_t i : {0, 1}) {
        EXPECT_EQ(results[i].strides(), x.strides()) << "result " << i;
        EXPECT_EQ(results[i].scalar_type(), type);
      }
    }
  });
}

TEST(SeedModules, LeaveEmptyEntriesOutAndTheOthersAlone) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    const auto module = blueprint.make(build_for(channels, 3, at::kFloat));
    randomise(*module);
    const at::Tensor x = stacked_copy(random_lanes({3, 2, channels, 5, 4}), at::kFloat);
    const at::Tensor grad = stacked_copy(random_lanes(x.sizes()), at::kFloat);
    const Tensors all = run(*module, x, grad);
    const lanes::ActiveLanes active(at::tensor({7, -1, 2}, at::kLong));
    const Tensors some = run(*module, x, grad);
    for (size_t i = 0; i < all.size(); ++i)
      for (const int64_t entry : {0, 2})
        expect_same_bits(some[i].select(0, entry), all[i].select(0, entry), "result " + std::to_string(i));
  });
}

TEST(SeedModules, KnowTheirParametersBeforeTheyAreBuilt) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    const auto module = blueprint.make(build_for(channels, 2, at::kFloat));
    int64_t values = 0;
    for (const auto& named : module->parameters()) values += named.parameter->storage().numel() / 2;
    EXPECT_EQ(values, blueprint.num_parameters({.channels = channels, .height = 5, .width = 4}));
  });
  const std::vector<Blueprint> all = built_in_blueprints();
  const SeedShape shape{.channels = 64, .height = 8, .width = 8};
  const std::vector<int64_t> by_hand{0,
                                     2 * 64 + 1,
                                     64 * 16 + 16 + 16 * 64 + 64,
                                     9 * 64 + 64 * 64 + 128,
                                     2 * 64 * 16 + 9 * 16 * 16 + 128,
                                     64 * 64 + 128,
                                     9 * 64 * 64 + 128,
                                     2 * (9 * 64 * 64 + 128)};
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].num_parameters(shape), by_hand[i]) << all[i].name;
}

TEST(SeedModules, BeginAsTheIdentity) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    const auto module = blueprint.make(build_for(channels, 2, at::kDouble));
    randomise(*module);  // as another seed left it
    module->initialise(SeedInit(3, 5, "r0c0." + blueprint.name + ".1", 1));
    const at::Tensor x = random_lanes({2, 3, channels, 5, 4});  // also below 0, as a norm may leave it
    const at::Tensor out = module->forward(x, lanes::Mode::kTrain).detach().select(0, 1);
    EXPECT_TRUE(at::equal(out, x.select(0, 1)));
  });
}

// A norm after a zero layer would bring the first trace of a signal to unit variance.
TEST(SeedModules, LeaveTheIdentityByAsLittleAsTheirParametersMoved) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    if (blueprint.name == "noop") return;
    const auto module = blueprint.make(build_for(channels, 1, at::kDouble));
    module->initialise(SeedInit(3, 5, "seed", 0));
    const at::Tensor x = random_lanes({1, 3, channels, 5, 4});
    const Tensors results = run(*module, x, random_lanes(x.sizes()));
    double norm = 0;
    for (size_t i = 2; i < results.size(); ++i) norm += results[i].square().sum().item<double>();
    constexpr double kMoved = 1e-3;  // as a step of SGD after clipping
    size_t i = 2;
    for (const auto& named : module->parameters()) {
      named.parameter->storage().sub_(results[i++] * (kMoved / std::sqrt(norm)));
      named.parameter->refresh();
    }
    const at::Tensor out = module->forward(x, lanes::Mode::kTrain).detach();
    EXPECT_GT(distance(out, x), 0);
    EXPECT_LE(distance(out, x), 100 * kMoved * largest(x));
  });
}

TEST(SeedModules, CanLearnFromBirth) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    if (blueprint.name == "noop") return;
    const auto module = blueprint.make(build_for(channels, 1, at::kDouble));
    module->initialise(SeedInit(3, 5, "seed", 0));
    const at::Tensor x = random_lanes({1, 3, channels, 5, 4});
    const Tensors results = run(*module, x, random_lanes(x.sizes()));
    double most = 0;
    for (size_t i = 2; i < results.size(); ++i) most = std::max(most, largest(results[i]));
    EXPECT_GT(most, 1e-3);
  });
}

TEST(SeedModules, GiveASeedTheSameValuesInWhateverEntryItSits) {
  each_blueprint([](const Blueprint& blueprint, int64_t channels) {
    const auto small = blueprint.make(build_for(channels, 1, at::kFloat));
    const auto large = blueprint.make(build_for(channels, 5, at::kFloat));
    small->initialise(SeedInit(3, 7, "seed", 0));
    large->initialise(SeedInit(3, 7, "seed", 4));
    large->initialise(SeedInit(3, 8, "seed", 2));
    large->initialise(SeedInit(3, 7, "another", 1));
    for (size_t i = 0; i < small->parameters().size(); ++i) {
      const at::Tensor one = small->parameters()[i].parameter->storage(),
                       many = large->parameters()[i].parameter->storage();
      expect_same_bits(one.select(0, 0), many.select(0, 4), small->parameters()[i].name);
      if (largest(one - one.flatten()[0]) == 0) continue;  // all alike at birth
      EXPECT_FALSE(at::equal(one.select(0, 0), many.select(0, 2))) << "another lane";
      EXPECT_FALSE(at::equal(one.select(0, 0), many.select(0, 1))) << "another seed";
    }
  });
}

}  // namespace
}  // namespace espalier::grow
