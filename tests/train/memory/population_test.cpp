// The plan of a population against the tensors that a trainer really has. The CPU shows what can be counted;
// MemoryPlanCuda shows the whole.
#include "espalier/train/memory/population.h"
#include "espalier/grow/host/registry.h"

#include <gtest/gtest.h>

#include <set>

#include "espalier/data/ring.h"
#include "espalier/jobs/ppo.h"
#include "tests/grow/grown.h"
#include "tests/support/peak_memory.h"
#include "tests/train/control/small_ppo.h"

namespace espalier::train {
namespace {

using testing::small_options;
using testing::small_ppo;
using testing::small_setup;

int64_t bytes_of(const MemoryPlan& plan, const std::string& what) {
  for (const MemoryPart& part : plan.parts)
    if (part.what == what) return part.bytes;
  return 0;
}

// Tensors that may share memory: each storage once.
class Storages {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.defined() && seen_.insert(tensor.storage().data()).second)
      bytes_ += static_cast<int64_t>(tensor.storage().nbytes());
  }
  void add(const lanes::LaneParameter& parameter) {
    for (const at::Tensor& tensor : {parameter.storage(), parameter.gradient(), parameter.compute()})
      add(tensor);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::set<const void*> seen_;
  int64_t bytes_ = 0;
};

PopulationNeeds needs_for(const PopulationConfig& options, const ShardSetup& setup) {
  return {.options = options,
          .host = setup.shape,
          .blueprints = setup.blueprints,
          .data = {setup.dataset->bytes(), setup.dataset->residency, setup.dataset->validation.num_samples()},
          .device = setup.dataset->device};
}

void plant(testing::OneShard& trainer, int32_t blueprint, BlendOperator blend) {
  grow::Lifecycle& life = trainer.lifecycle();
  for (int64_t lane = 0; lane < life.num_lanes(); ++lane) {
    life.reset_lane(lane);
    for (int64_t slot = 0; slot < trainer.population().num_slots(); ++slot)
      ASSERT_TRUE(life.germinate(lane, slot, {.blueprint = blueprint, .blend_operator = blend}).passed());
  }
}

class PopulationMemory : public ::testing::TestWithParam<Precision> {};

TEST_P(PopulationMemory, CountsWeightsOptimiserBatchesAndSnapshotsToTheByte) {
  PopulationConfig options = small_options(3);
  options.precision = GetParam();
  testing::OneShard trainer(options, small_setup(options));
  const MemoryPlan plan = population_parts(needs_for(options, trainer.setup()));

  Storages weights, optimizer, batch;
  for (const lanes::NamedParameter& named : trainer.population().host().parameters())
    weights.add(*named.parameter);
  for (const grow::Host::Buffer& buffer : trainer.population().host().buffers()) weights.add(buffer.tensor);
  const lanes::LaneSGD& sgd = *trainer.step().optimizers().groups().front().optimizer;
  for (const at::Tensor& tensor : sgd.state()) optimizer.add(tensor);
  for (const at::Tensor& tensor : {sgd.learning_rates, sgd.momentum_factors, sgd.weight_decays, sgd.frozen})
    optimizer.add(tensor);
  batch.add(trainer.step().batch().images()[0]);
  batch.add(trainer.step().batch().labels());
  EXPECT_EQ(bytes_of(plan, "hosts: weights and gradients"), weights.bytes());
  EXPECT_EQ(bytes_of(plan, "hosts: optimiser"), optimizer.bytes());
  EXPECT_EQ(bytes_of(plan, "batches of training"), batch.bytes());
  EXPECT_EQ(bytes_of(plan, "last good state of every lane"), trainer.snapshots().bytes());
  EXPECT_EQ(bytes_of(plan, "data"), trainer.setup().dataset->bytes());
}

TEST_P(PopulationMemory, CountsSeedsOfEveryBlueprintAndSlotToTheByte) {
  PopulationConfig options = small_options(3);
  options.precision = GetParam();
  if (GetParam() == Precision::kBf16) {  // ages that no warm-up asks for
    options.seed_warm_up = 0;
    options.seed_schedule = RateCurve::kConstant;
  }
  testing::OneShard trainer(options, small_setup(options));
  PopulationNeeds needs = needs_for(options, trainer.setup());
  needs.growth.emplace();
  const MemoryPlan plan = population_parts(needs);

  Storages weights, optimizer;
  std::set<std::string> groups;
  for (const std::string& name : trainer.population().blueprints().names()) {
    if (name == "noop") continue;
    plant(trainer, trainer.population().blueprints().index_of(name), BlendOperator::kGate);
    trainer.lifecycle().begin_epoch();
    trainer.step().sync_groups(trainer.population().apply(trainer.lifecycle().states()));
    for (const OptimizedGroup& group : trainer.step().optimizers().groups()) {
      if (group.is_host()) continue;
      groups.insert(group.group.name);
      for (const lanes::LaneParameter* parameter : group.parameters) weights.add(*parameter);
      for (const at::Tensor& tensor : group.optimizer->state()) optimizer.add(tensor);
      for (const at::Tensor& tensor : {group.optimizer->learning_rates, group.optimizer->momentum_factors,
                                       group.optimizer->weight_decays, group.optimizer->frozen})
        optimizer.add(tensor);
    }
  }
  EXPECT_EQ(groups.size(), 3u * 7u * 2u) << "slots, blueprints, seeds and gates";
  EXPECT_EQ(bytes_of(plan, "seeds of every blueprint and slot: weights and gradients"), weights.bytes());
  EXPECT_EQ(bytes_of(plan, "seeds of every blueprint and slot: optimiser"), optimizer.bytes());
}

INSTANTIATE_TEST_SUITE_P(Precisions, PopulationMemory, ::testing::Values(Precision::kFp32, Precision::kBf16));

TEST(PopulationMemoryPlan, CountsTheSnapshotsOfLanesThatHaveGrown) {
  const PopulationConfig options = small_options(3);
  testing::OneShard trainer(options, small_setup(options));
  PopulationNeeds needs = needs_for(options, trainer.setup());
  needs.growth.emplace();
  plant(trainer, trainer.population().blueprints().index_of("conv_heavy"), BlendOperator::kGate);
  trainer.train_epoch();
  EXPECT_EQ(bytes_of(population_parts(needs), "last good state of every lane"), trainer.snapshots().bytes());
  needs.on_failure = OnFailure::kRetire;
  EXPECT_EQ(bytes_of(population_parts(needs), "last good state of every lane"), 0);
}

TEST(PopulationMemoryPlan, GrowsWithWhatMayGrow) {
  const PopulationConfig options = small_options(4);
  PopulationNeeds needs = needs_for(options, small_setup(options));
  const auto bytes = [&] { return population_parts(needs).total_bytes(); };
  const int64_t bare = bytes();
  needs.growth = GrowthLimits{.max_seeds = 1};
  const int64_t one = bytes();
  needs.growth->max_seeds = 2;
  const int64_t two = bytes();
  needs.growth.emplace();
  const int64_t all = bytes();
  EXPECT_LT(bare, one);
  EXPECT_LT(one, two);
  EXPECT_LT(two, all);
  needs.growth->enabled_slots = {false, false, true};
  EXPECT_LT(bytes(), one) << "the smallest slot alone";
}

// The step's own part: weights of one more kind are counted whatever it says.
TEST(PopulationMemoryPlan, TakesAKindThatDoesNotSayWhatItHoldsForTheHeaviest) {
  const PopulationConfig options = small_options(4);
  PopulationNeeds needs = needs_for(options, small_setup(options));
  needs.growth.emplace();
  const auto step_bytes = [&](const std::function<double(const grow::SeedShape&, at::Device)>& held) {
    PopulationNeeds with = needs;
    grow::Blueprint mine = with.blueprints.at(0);
    mine.name = "mine";
    mine.held = held;
    with.blueprints.add(mine);
    return bytes_of(population_parts(with), "activations of a step");
  };
  const int64_t built_in = bytes_of(population_parts(needs), "activations of a step");
  ASSERT_GT(built_in, 0);
  EXPECT_EQ(step_bytes({}), built_in);
  EXPECT_EQ(step_bytes([](const grow::SeedShape&, at::Device) { return 1.0; }), built_in);
  EXPECT_GT(step_bytes([](const grow::SeedShape&, at::Device) { return 50.0; }), built_in);
}

TEST(PopulationMemoryPlan, GrowsWithLanesAndBatchAndNamesItsParts) {
  PopulationNeeds needs;
  needs.host = grow::hosts().at("cifar_baseline").cnn;
  needs.data.bytes = 1000;
  const auto total = [&](int64_t lanes, int64_t batch, const char* controller) {
    needs.options.lanes = lanes;
    needs.options.batch = batch;
    needs.options.controller = controller;
    return job_parts(needs, needs_of(needs.options)).total_bytes();
  };
  EXPECT_GT(total(8, 64, "none"), total(4, 64, "none"));
  EXPECT_GT(total(8, 128, "none"), total(8, 64, "none"));
  EXPECT_GT(total(8, 64, "random"), total(8, 64, "none"));
  EXPECT_EQ(population_parts(needs).parts.front().bytes, 1000);
  EXPECT_EQ(population_parts(needs).parts.front().what, "data");
}

// A product that wrapped around would be a part of less than nothing.
TEST(PopulationMemoryPlan, NeedsMoreThanThereIsWhereSizesOverflow) {
  PopulationNeeds needs{.host = grow::hosts().at("cifar_baseline").cnn, .device = at::Device(at::kCUDA, 0)};
  needs.options.lanes = 4096;
  for (const int64_t side : {1 << 10, 1 << 15, 1 << 20})
    for (const int64_t batch : {1 << 10, 1 << 20}) {
      needs.host->height = needs.host->width = side;
      needs.options.batch = batch;
      EXPECT_GT(population_parts(needs).total_bytes(), int64_t{1} << 44) << side << ", batch " << batch;
    }
}

// On a GPU what is scored at a time is larger than a training's batch, but no larger than the split.
TEST(PopulationMemoryPlan, CountsTheBatchThatIsScored) {
  PopulationNeeds needs{.host = grow::hosts().at("cifar_baseline").cnn, .device = at::Device(at::kCUDA, 0)};
  needs.options.lanes = 32;
  needs.options.batch = 8;
  needs.options.precision = Precision::kBf16;
  const auto bytes_with = [&](int64_t num_validation, int64_t validation_batch) {
    needs.options.validation_batch = validation_batch;
    needs.data.num_validation = num_validation;
    return population_parts(needs).total_bytes();
  };
  EXPECT_LT(bytes_with(100, 0), bytes_with(400, 0));
  EXPECT_EQ(bytes_with(400, 0), bytes_with(400, 512)) << "16,384 images of 32 networks";
  EXPECT_EQ(bytes_with(1024, 0), bytes_with(512, 0)) << "shared out evenly";
  EXPECT_EQ(bytes_with(0, 0), bytes_with(512, 0)) << "not known: the largest";
}

// On the CPU, where batches are made in the step.
TEST(PopulationMemoryPlan, PutsDataWhereItStays) {
  const PopulationConfig options = small_options(2);
  PopulationNeeds needs = needs_for(options, small_setup(options));
  const int64_t on_device = population_parts(needs).total_bytes();
  needs.data.residency = data::Residency::kHost;
  const MemoryPlan plan = population_parts(needs);
  EXPECT_EQ(plan.total_bytes(), on_device - needs.data.bytes);
  EXPECT_EQ(plan.bytes_in(MemoryPlace::kHost), needs.data.bytes);
}

// As BatchDelivery has them.
int64_t bytes_made_ahead(int64_t lanes, int64_t batch, at::ScalarType type) {
  const data::BatchRing::Lease one =
      data::BatchRing({.lanes = lanes, .batch = batch, .image_sizes = {{3, 32, 32}}, .type = type})
          .acquire(current_stream(at::kCPU));
  Storages storages;
  for (const at::Tensor& tensor : {one.buffers().fields.front(), one.buffers().labels, one.buffers().mask})
    storages.add(tensor);
  return 3 * storages.bytes();
}

TEST(PopulationMemoryPlan, CountsBatchesThatAreMadeAheadOfDataInHostMemory) {
  PopulationNeeds needs{.host = grow::hosts().at("cifar_baseline").cnn, .device = at::Device(at::kCUDA, 0)};
  needs.options.lanes = 5;
  needs.options.batch = 7;
  needs.options.validation_batch = 11;
  needs.options.precision = Precision::kBf16;
  needs.data = {.bytes = 1000, .num_validation = 400};
  const int64_t of_training = bytes_made_ahead(5, 7, at::kBFloat16),
                of_validation = bytes_made_ahead(1, 11, at::kBFloat16);
  const auto bytes = [&] { return job_parts(needs, needs_of(needs.options)).total_bytes(); };
  const int64_t near = bytes();
  needs.data.residency = data::Residency::kHost;
  EXPECT_EQ(bytes(), near - 1000 + of_training + of_validation);
  const MemoryPlan plan = population_parts(needs);
  EXPECT_EQ(bytes_of(plan, "batches of training that are made ahead"), of_training);
  EXPECT_EQ(bytes_of(plan, "batches of validation that are made ahead"), of_validation);
  needs.options.controller = "random";
  needs.data.residency = data::Residency::kDevice;
  const int64_t grown = bytes();
  needs.data.residency = data::Residency::kHost;
  EXPECT_EQ(bytes(), grown - 1000 + of_training + of_validation) << "whatever grows";
}

// One network over ranks: gradients are sent in flat copies, and a step that waits for others is no graph.
TEST(PopulationMemoryPlan, CountsWhatRanksSendEachOther) {
  constexpr const char* kSent = "gradients on their way to other ranks";
  PopulationConfig options = small_options(1);
  const ShardSetup setup = small_setup(options);
  testing::OneShard trainer(options, small_setup(options));
  int64_t gradients = 0, statistics = 0;
  for (const lanes::NamedParameter& named : trainer.population().host().parameters())
    gradients += static_cast<int64_t>(named.parameter->value().nbytes());
  for (const grow::Host::Buffer& buffer : trainer.population().host().buffers())
    statistics += static_cast<int64_t>(buffer.tensor.nbytes());
  PopulationNeeds needs = needs_for(options, setup);
  needs.device = at::Device(at::kCUDA, 0);
  EXPECT_EQ(bytes_of(population_parts(needs), kSent), 0) << "one process";
  EXPECT_GT(bytes_of(population_parts(needs), "captured graphs of a step"), 0);
  needs.ranks = 2;
  EXPECT_EQ(bytes_of(population_parts(needs), kSent), gradients + statistics);
  EXPECT_EQ(bytes_of(population_parts(needs), "captured graphs of a step"), 0);
  needs.options.sync_norm = true;
  EXPECT_EQ(bytes_of(population_parts(needs), kSent), gradients);
}

// The small host, as a program would bring it.
PopulationNeeds needs_for_own_host(const PopulationConfig& options) {
  PopulationNeeds needs = needs_for(options, small_setup(options));
  set_host(needs, needs.host->frame(), grow::cnn_host(testing::small_host(options)));
  return needs;
}

TEST(PopulationMemoryPlan, CountsTheWeightsOfAProgramsOwnHost) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    PopulationConfig options = small_options(3);
    options.precision = precision;
    PopulationNeeds known = needs_for(options, small_setup(options)), own = needs_for_own_host(options);
    ASSERT_FALSE(own.host);
    known.growth.emplace();
    own.growth.emplace();
    const MemoryPlan want = population_parts(known), plan = population_parts(own);
    for (const MemoryPart& part : want.parts)
      if (part.what != "activations of a step") {
        EXPECT_EQ(bytes_of(plan, part.what), part.bytes) << part.what;
      }
  }
}

TEST(PopulationMemoryPlan, SaysThatItDoesNotKnowWhatAProgramsOwnHostKeeps) {
  PopulationNeeds needs = needs_for_own_host(small_options(3));
  const MemoryPlan silent = population_parts(needs);
  ASSERT_EQ(silent.unknown.size(), 1u);
  EXPECT_EQ(silent.unknown.front(), "what layers of the program's own host keep in a step");
  EXPECT_EQ(job_parts(needs, needs_of(needs.options)).unknown, silent.unknown);
  EXPECT_EQ(bytes_of(silent, "activations of a step"), 0);
  EXPECT_TRUE(population_parts(needs_for(small_options(3), small_setup(small_options(3)))).unknown.empty());

  needs.own_host->held = [](const grow::HostFrame& frame, at::Device) {
    return 50.0 * static_cast<double>(frame.height * frame.width);
  };
  const MemoryPlan told = population_parts(needs);
  EXPECT_TRUE(told.unknown.empty());
  const double kept = 50.0 * 8 * 8 * 3 * 10 * 4;  // of 8 x 8 images, 3 lanes, 10 samples, in fp32
  EXPECT_GT(static_cast<double>(bytes_of(told, "activations of a step")), kept);
  EXPECT_LT(static_cast<double>(bytes_of(told, "activations of a step")), 2 * kept);
}

// By its name it brings what it says of itself.
TEST(PopulationMemoryPlan, AsksARegisteredHostWhatItKeeps) {
  const PopulationConfig small = small_options(2);
  grow::hosts().add({.name = "told",
                     .make = grow::cnn_host(testing::small_host(small)),
                     .held = [](const grow::HostFrame&, at::Device) { return 1000.0; }});
  grow::hosts().add({.name = "untold", .make = grow::cnn_host(testing::small_host(small))});
  PopulationNeeds needs = needs_for(small, small_setup(small));
  const grow::HostFrame frame = needs.host->frame();
  needs.options.host = "told";
  set_host(needs, frame);
  EXPECT_TRUE(population_parts(needs).unknown.empty());
  needs.options.host = "untold";
  set_host(needs, frame);
  ASSERT_EQ(population_parts(needs).unknown.size(), 1u);
  EXPECT_EQ(population_parts(needs).unknown.front(), "what layers of host 'untold' keep in a step");
  needs.options.host = "cifar_baseline";
  set_host(needs, grow::hosts().at("cifar_baseline").cnn->frame());
  EXPECT_TRUE(needs.host && !needs.own_host);
}

// Before a job starts.
TEST(PopulationMemoryPlan, OfAJobSaysThatItDoesNotKnowItsHost) {
  const PopulationConfig options = small_options(2);
  ShardSetup setup = small_setup(options);
  const auto unknown = [&] { return check_devices(options, std::span(&setup, 1), {}).front().plan.unknown; };
  EXPECT_TRUE(unknown().empty());
  setup.shape.reset();
  EXPECT_EQ(unknown().size(), 1u);
}

TEST(PopulationMemoryPlan, FindsWhatFitsWhileOneMoreDoesNot) {
  PopulationNeeds needs;
  needs.host = grow::hosts().at("cifar_baseline").cnn;
  needs.device = at::Device(at::kCUDA, 0);
  needs.growth.emplace();
  const auto with_lanes = [&](int64_t lanes) {
    needs.options.lanes = lanes;
    return job_parts(needs, {.growth = needs.growth}).total_bytes();
  };
  constexpr int64_t kBudget = int64_t{20} << 30;
  const int64_t lanes = largest_fitting(with_lanes, kBudget, 4096);
  EXPECT_GT(lanes, 4);
  EXPECT_LE(with_lanes(lanes), kBudget);
  EXPECT_GT(with_lanes(lanes + 1), kBudget);
}

PolicyOptions small_policy(const PpoConfig& options) {
  const ShardSetup setup = small_setup(options.population);
  return policy_options(options, options.policy, space_of(setup));
}

TEST(PolicyMemory, CountsWeightsMomentsAndRolloutToTheByte) {
  PpoConfig options = small_ppo(3);
  options.policy.encoder_size = 24;
  const PolicyOptions policy = small_policy(options);
  PolicyController controller(policy);
  Storages weights, rollout;
  for (const NamedTensor& named : controller.network().parameters()) weights.add(named.tensor);
  for (const NamedTensor& named : controller.acting().rollout().named_tensors()) rollout.add(named.tensor);
  const MemoryPlan plan = policy_parts(policy, PolicyUse::kLearns);
  EXPECT_EQ(bytes_of(plan, "policy: weights and moments"), 3 * weights.bytes());
  EXPECT_EQ(bytes_of(plan, "policy: rollout"), rollout.bytes());
}

// The same operators run on a GPU: what they keep is the same.
TEST(PolicyMemory, PlansAnUpdateWithinAFewPercent) {
  struct Case {
    int64_t lanes, epochs, encoder, hidden, minibatches;
  };
  for (const Case& sizes : {Case{16, 33, 256, 256, 1}, Case{16, 33, 256, 256, 4}, Case{16, 65, 512, 64, 1},
                            Case{16, 65, 64, 256, 1}, Case{4, 5, 256, 256, 1}, Case{32, 33, 16, 16, 1}}) {
    PpoConfig options = small_ppo(sizes.lanes);
    options.population.epochs = sizes.epochs;
    options.policy.encoder_size = sizes.encoder;
    options.policy.hidden_size = sizes.hidden;
    options.policy.minibatches = sizes.minibatches;
    const PolicyOptions policy = small_policy(options);
    PolicyController controller(policy);
    controller.begin_episode(0);
    controller.update(0);
    const int64_t used = support::peak_bytes_of([&] { controller.update(0); });
    const int64_t planned = bytes_of(policy_parts(policy, PolicyUse::kLearns), "activations of the policy");
    EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(used), 1, 0.15)
        << "planned " << planned << ", used " << used << ", lanes " << sizes.lanes << ", epochs "
        << sizes.epochs << ", encoder " << sizes.encoder << ", hidden " << sizes.hidden << ", minibatches "
        << sizes.minibatches << ", weights "
        << bytes_of(policy_parts(policy, PolicyUse::kLearns), "policy: weights and moments") / 3;
  }
}

}  // namespace
}  // namespace espalier::train
