#include "espalier/grow/network_file.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "espalier/core/error.h"
#include "espalier/grow/export/python.h"
#include "espalier/grow/host/registry.h"
#include "espalier/tensor/file.h"
#include "tests/grow/grown_stack.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::grow {
namespace {

using lanes::testing::expect_same_bits;
using testing::images_for;
using testing::randomise_seeds;
using testing::seed_in;
using testing::States;
using testing::two_blocks;

constexpr int64_t kSlots = 3;

NetworkDescription bare(const CnnHostOptions& options) {
  NetworkDescription network{.host = "two_blocks",
                             .channels = options.in_channels,
                             .height = options.height,
                             .width = options.width,
                             .mean = {0.1, 0.2, 0.3},
                             .deviation = {1, 2, 3}};
  for (int64_t i = 0; i < options.num_classes; ++i) network.classes.push_back(fmt::format("class {}", i));
  network.origin.run = "a test";
  return network;
}

// Every blueprint, operator and stage that holds a seed: a lane each.
struct EveryState {
  EveryState() {
    const BlueprintRegistry blueprints;
    constexpr std::array kStages{SeedStage::kGerminated, SeedStage::kTraining, SeedStage::kBlending,
                                 SeedStage::kHolding, SeedStage::kFossilized};
    for (int32_t blueprint = 0; blueprint < blueprints.size(); ++blueprint)
      for (int op = 0; op < kNumBlendOperators; ++op)
        for (const SeedStage stage : kStages) {
          const bool is_isolated = stage == SeedStage::kGerminated || stage == SeedStage::kTraining;
          all.push_back(seed_in(stage, blueprint, is_isolated ? 0 : 0.35f, static_cast<BlendOperator>(op)));
          if (!is_isolated) all.back().target = 0.35f;  // at rest, as a lifecycle leaves it
        }
  }
  std::vector<SlotState> all;
};

// Lanes that hold these, each in another slot, and conv_light in the one after it.
std::unique_ptr<NetworkStack> grown(const std::vector<SlotState>& seeds) {
  const auto lanes = static_cast<int64_t>(seeds.size());
  auto population =
      std::make_unique<NetworkStack>(two_blocks(lanes), BlueprintRegistry(), at::kCPU, at::kFloat);
  States states(lanes, kSlots);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    states.at(lane, lane % kSlots) = seeds[static_cast<size_t>(lane)];
    states.at(lane, (lane + 1) % kSlots) = seed_in(SeedStage::kHolding, 6, 1);
  }
  population->apply(states.all);
  randomise_seeds(*population);
  torch::manual_seed(3);
  for (const at::Tensor& buffer : population->buffers()) buffer.copy_(at::rand(buffer.sizes()) + 0.5);
  return population;
}

std::vector<GrownNetwork> networks_of(NetworkStack& population) {
  std::vector<GrownNetwork> networks;
  for (int64_t lane = 0; lane < population.num_lanes(); ++lane)
    networks.push_back(network_of(population, lane, bare(two_blocks(1))));
  return networks;
}

TEST(NetworkFile, ComputesTheSameBitsInAnotherPopulationForEveryBlueprintOperatorAndStage) {
  const support::TemporaryFolder folder;
  const auto population = grown(EveryState().all);
  std::vector<GrownNetwork> read;
  for (const GrownNetwork& network : networks_of(*population)) {
    write_network(folder / "net.safetensors", network);
    read.push_back(read_network(folder / "net.safetensors"));
  }
  CnnHostOptions options = two_blocks(population->num_lanes());
  options.seed = 99;  // whatever values it begins with
  NetworkStack other(options, BlueprintRegistry(), at::kCPU, at::kFloat);
  become(other, read);
  EXPECT_EQ(other.signature(), population->signature());
  const at::Tensor x = images_for(*population, 4, at::kFloat);
  expect_same_bits(other.forward(x, lanes::Mode::kEvaluate), population->forward(x, lanes::Mode::kEvaluate),
                   "logits");
  for (size_t i = 0; i < read.size(); ++i)
    EXPECT_EQ(std::memcmp(&other.applied()[i], &population->applied()[i], sizeof(SlotState)), 0) << i;
}

TEST(NetworkFile, ComputesTheSameWithoutSeedsThatAreNotFelt) {
  const auto population = grown(EveryState().all);
  std::vector<GrownNetwork> felt;
  for (const GrownNetwork& network : networks_of(*population)) {
    felt.push_back(only_felt(network));
    EXPECT_EQ(felt.back().description.seeds.size(),
              is_felt(network.description.seeds[0]) && is_felt(network.description.seeds[1]) ? 2u : 1u);
  }
  NetworkStack other(two_blocks(population->num_lanes()), BlueprintRegistry(), at::kCPU, at::kFloat);
  become(other, felt);
  const at::Tensor x = images_for(*population, 4, at::kFloat);
  expect_same_bits(other.forward(x, lanes::Mode::kEvaluate), population->forward(x, lanes::Mode::kEvaluate),
                   "logits");
}

TEST(NetworkFile, RefusesWhatIsMissingOfAnotherShapeOrOfNothing) {
  const auto population = grown({seed_in(SeedStage::kHolding, 7, 1)});
  NetworkStack other(two_blocks(1), BlueprintRegistry(), at::kCPU, at::kFloat);
  const GrownNetwork sound = networks_of(*population).front();
  GrownNetwork network = sound;
  network.tensors.erase("r0c0.seed.conv1.weight");
  EXPECT_ERROR(become(other, {network}), Error, "lane 0 of 'a test'", "no tensor 'r0c0.seed.conv1.weight'");
  network = sound;
  network.tensors["classifier.bias"] = at::zeros({3});
  EXPECT_ERROR(become(other, {network}), Error, "'classifier.bias'", "[4]", "[3]");
  network = sound;
  network.tensors["r0c0.seed.more"] = at::zeros({3});
  EXPECT_ERROR(become(other, {network}), Error, "\"r0c0.seed.more\"", "belongs to nothing");
  network = sound;
  network.description.seeds.front().blueprint = "conv_huge";
  EXPECT_ERROR(become(other, {network}), Error, "conv_huge", "conv_heavy");
  network = sound;
  network.description.seeds.front().slot = "r7c7";
  EXPECT_ERROR(become(other, {network}), Error, "r7c7", "r0c1");
  network = sound;
  network.tensors = {{"classifier.bias", at::zeros({3})}};
  EXPECT_ERROR(become(other, {network}), Error, "its tensors hold 3");
  EXPECT_ERROR(become(other, {}), Error, "want 1 networks");
}

TEST(NetworkFile, RefusesTensorsOfAnotherType) {
  const support::TemporaryFolder folder;
  const auto population = grown({seed_in(SeedStage::kHolding, 7, 1)});
  GrownNetwork network = networks_of(*population).front();
  network.tensors["classifier.bias"] = at::zeros({4}, at::kLong);
  write_network(folder / "net.safetensors", network);
  EXPECT_ERROR(read_network(folder / "net.safetensors"), Error, "net.safetensors", "\"classifier.bias\"",
               "float32");
}

struct TwoBlocksByName {
  TwoBlocksByName() {
    static const bool once = [] {
      CnnHostOptions options = two_blocks(1);
      HostKind kind = {.name = "two_blocks", .make = cnn_host(options)};
      const CnnHostOptions baseline = options;
      kind.python = [baseline](const HostFrame&) {
        // As the presets' is: asked of one of them, whose text differs in sizes alone.
        return hosts().at("cifar_baseline").python({.num_classes = baseline.num_classes});
      };
      hosts().add(kind);
      return true;
    }();
    static_cast<void>(once);
  }
};

TEST(NetworkPython, HasEachClassOnceAndEverySeedAtItsSlot) {
  const TwoBlocksByName registered;
  const auto population = grown({seed_in(SeedStage::kFossilized, 6, 0.7f), seed_in(SeedStage::kTraining, 3)});
  const std::vector<GrownNetwork> networks = networks_of(*population);
  const std::string text = python_text(networks[0].description, {}, "net");
  const auto count = [&](const std::string& part) {
    int found = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) found += 1;
    return found;
  };
  EXPECT_EQ(count("class ConvLight(nn.Module)"), 1) << text;
  EXPECT_EQ(count("class Add(nn.Module)"), 1);
  EXPECT_EQ(count("class Gated"), 0);
  EXPECT_EQ(count("self.r0c0 = Add(ConvLight(8, groups=8), amplitude=0.7)"), 1);
  EXPECT_EQ(count("self.r0c1 = Add(ConvLight(16, groups=1), amplitude=1)"), 1);
  EXPECT_EQ(python_text(networks[1].description, {}, "net").find("Depthwise"), std::string::npos);
}

TEST(NetworkPython, RefusesWhatDoesNotDescribeItself) {
  const TwoBlocksByName registered;
  BlueprintRegistry blueprints;
  blueprints.add({.name = "own",
                  .num_parameters = [](const SeedShape&) { return int64_t{0}; },
                  .make = blueprints.at(0).make});
  NetworkDescription network = bare(two_blocks(1));
  network.seeds.push_back({"r0c0", "own", seed_in(SeedStage::kFossilized, 0, 1)});
  EXPECT_ERROR(python_text(network, blueprints, "net"), Error, "'own'", "r0c0", "Blueprint::python");
  hosts().add({.name = "speechless", .make = cnn_host(two_blocks(1))});
  network.host = "speechless";
  EXPECT_ERROR(python_text(network, blueprints, "net"), Error, "'speechless'", "HostKind::python");
  network.host = "nowhere";
  EXPECT_ERROR(python_text(network, blueprints, "net"), Error, "nowhere", "cifar_wide");
}

// Asked for by tests/jobs/grown_networks_test.py, which loads each in PyTorch: every blueprint and operator,
// with images and the logits that they came to here.
TEST(NetworkPython, WritesEveryBlueprintAndOperatorForPyTorch) {
  const char* const folder = std::getenv("ESPALIER_NETWORKS_OUT");
  if (folder == nullptr) GTEST_SKIP() << "ESPALIER_NETWORKS_OUT is not set";
  CnnHostOptions options =
      hosts().at("cifar_baseline").cnn->in({.in_channels = 3, .height = 9, .width = 8, .num_classes = 4});
  std::vector<SlotState> seeds;
  for (const SlotState& state : EveryState().all)
    if (state.stage == SeedStage::kBlending || state.stage == SeedStage::kTraining) seeds.push_back(state);
  options.lanes = std::ssize(seeds);
  NetworkStack population(options, BlueprintRegistry(), at::kCPU, at::kFloat);
  const int64_t slots = population.num_slots();
  States states(options.lanes, slots);
  for (int64_t lane = 0; lane < options.lanes; ++lane)
    for (int64_t slot = 0; slot < slots; ++slot)
      states.at(lane, slot) = seeds[static_cast<size_t>((lane + slot * 7) % options.lanes)];
  population.apply(states.all);
  randomise_seeds(population);
  torch::manual_seed(3);
  for (const at::Tensor& buffer : population.buffers()) buffer.copy_(at::rand(buffer.sizes()) + 0.5);
  NetworkDescription described = bare(options);
  described.host = "cifar_baseline";
  const at::Tensor x = images_for(population, 5, at::kFloat);
  const at::Tensor logits = population.forward(x, lanes::Mode::kEvaluate);
  for (int64_t lane = 0; lane < options.lanes; ++lane) {
    const GrownNetwork network = only_felt(network_of(population, lane, described));
    const std::string stem = fmt::format("{}/net{}", folder, lane);
    write_network(stem + ".safetensors", network);
    std::ofstream(stem + ".py") << python_text(network.description, {}, fmt::format("net{}", lane));
    write_tensors(stem + ".expected", {{"images", x.select(0, lane)}, {"logits", logits.select(0, lane)}},
                  {});
  }
}

}  // namespace
}  // namespace espalier::grow
