// The plans of all jobs against what they came to on a GPU: within 15 %. What is used is what torch's
// allocator had handed out at its peak, what captured graphs hold for themselves, and what the driver took
// besides. Both are printed part by part, so that a number of train/memory/allowances.h that is wrong can be
// told.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <thread>

#include "espalier/core/machine/device_memory.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/data/sources/source.h"
#include "espalier/jobs/ppo.h"
#include "espalier/train/linet/trainer.h"
#include "espalier/train/memory/allowances.h"
#include "espalier/train/memory/linet.h"
#include "espalier/train/population/setup.h"
#include "tests/grow/grown.h"
#include "tests/support/cuda.h"
#include "tests/train/population/small_population.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>

namespace espalier::train {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

const c10::Device kCuda(c10::kCUDA, 0);
const DeviceName kName{.kind = DeviceName::Kind::kCuda, .index = 0};
constexpr double kTolerance = 0.15;

struct Reading {
  int64_t allocated = 0;
  int64_t peak = 0;  // allocated, since the last reset
  int64_t reserved = 0;
  int64_t on_device = 0;  // in use on the card, by everybody
};

Reading read_now() {
  torch::cuda::synchronize();
  const auto stats = allocator::getDeviceStats(0);
  const auto memory = *cuda_memory(0);
  return {.allocated = stats.allocated_bytes[0].current,
          .peak = stats.allocated_bytes[0].peak,
          .reserved = stats.reserved_bytes[0].current,
          .on_device = memory.total_bytes - memory.free_bytes};
}

// What the driver holds beyond the allocator: the context, loaded kernels, graphs.
int64_t driver_bytes(const Reading& reading) {
  return reading.on_device - reading.reserved;
}

// Before anything but the context is there: kernels that an earlier test loaded count for each. A process
// that has just ended may still be giving its memory back: waits for the card to come to rest.
const Reading& first_reading() {
  static const Reading reading = [] {
    const at::Tensor any = at::empty({1}, at::TensorOptions(kCuda));
    allocator::emptyCache();
    Reading last = read_now();
    for (int same = 0; same < 10;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const Reading now = read_now();
      same = now.on_device == last.on_device ? same + 1 : 0;
      last = now;
    }
    return last;
  }();
  return reading;
}

class MemoryPlanCuda : public ::testing::Test {
 protected:
  void SetUp() override { ESPALIER_SKIP_WITHOUT_CUDA(); }
};

// What is used from its construction on.
class MemoryMeter {
 public:
  MemoryMeter() {
    first_reading();
    allocator::emptyCache();
    allocator::resetPeakStats(0);
    before_ = read_now();
  }

  // After the data, and after everything else that stays was made.
  void note(const std::string& what) {
    const int64_t now = read_now().allocated;
    stages_.emplace_back(what, now - before_.allocated - noted_);
    noted_ = now - before_.allocated;
  }

  // While all that was trained still lives.
  void expect_planned(const std::string& job, const MemoryPlan& plan) {
    const Reading full = read_now();
    allocator::emptyCache();
    const Reading held = read_now();
    // Blocks that nothing is in and that are not given back: those of captured graphs, and rests of others.
    const int64_t graphs = (held.reserved - held.allocated) - (before_.reserved - before_.allocated);
    const int64_t in_flight = full.peak - full.allocated;
    const int64_t driver = driver_bytes(held) - driver_bytes(first_reading());
    const int64_t used = (full.peak - before_.allocated) + graphs + driver;
    const int64_t planned = plan.total_bytes();
    note("made while it ran");

    std::string text = job + "\n  planned\n";
    const auto line = [&](const std::string& what, int64_t bytes) {
      text += fmt::format("    {:<62}{:>12}\n", what, format_byte_size(bytes));
    };
    for (const MemoryPart& part : plan.parts)
      line(part.what + (part.place == MemoryPlace::kDriver ? " (driver)"
                        : part.place == MemoryPlace::kHost ? " (host, not counted)"
                                                           : ""),
           part.bytes);
    line("in all", planned);
    text += "  used\n";
    for (const auto& [what, bytes] : stages_) line(what, bytes);
    line("in flight at the peak", in_flight);
    line("in captured graphs, and rests of blocks", graphs);
    line("driver: kernels, graphs", driver);
    line("in all", used);
    line("for comparison: reserved at most by the allocator", full.reserved - before_.reserved);
    text +=
        fmt::format("  planned / used {:.3f}\n", static_cast<double>(planned) / static_cast<double>(used));
    fmt::print("{}", text);
    EXPECT_NEAR(static_cast<double>(planned) / static_cast<double>(used), 1, kTolerance) << text;
  }

 private:
  Reading before_;
  int64_t noted_ = 0;
  std::vector<std::pair<std::string, int64_t>> stages_;
};

// Reads the options' own source, outside of the cache: it goes with the test.
template <class Options>
std::shared_ptr<const data::ResidentDataset> data_for(const Options& options) {
  return data::make_resident(data::load_source(options.source, {}), options.resident, kCuda, {});
}

testing::SmallSetup setup_for(const PopulationConfig& options,
                              const std::shared_ptr<const data::ResidentDataset>& dataset) {
  const std::vector<data::FieldSpec> specs = specs_of(dataset->train);
  const grow::HostFrame frame =
      frame_for(options, specs[chosen_field(options, specs)], dataset->num_classes());
  testing::SmallSetup setup;
  setup.options = options;
  setup.dataset = dataset;
  setup.device = kName;
  setup.shape = planned_host(options, frame);
  return setup;
}

PopulationNeeds needs_for(const PopulationConfig& options, const ShardSetup& setup) {
  return {.options = options,
          .host = setup.shape,
          .blueprints = setup.blueprints,
          .data = {setup.dataset->bytes(), setup.dataset->residency, setup.dataset->validation.num_samples()},
          .device = kCuda};
}

TEST_F(MemoryPlanCuda, HoldsForAHost) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp32}) {
    MemoryMeter meter;
    PopulationConfig options;
    options.devices = {parse_device("cuda:0")};
    options.lanes = 1;
    options.host = "cifar_wide";
    options.batch = 8192;
    options.precision = precision;
    options.source.synthetic_train = 40000;
    const auto dataset = data_for(options);
    meter.note("data");
    testing::OneShard trainer(options, setup_for(options, dataset));
    meter.note("network, optimiser, batches, last good state");
    for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch();
    meter.expect_planned(fmt::format("host, precision {}", static_cast<int>(precision)),
                         job_parts(needs_for(options, trainer.setup()), needs_of(options)));
  }
}

PopulationConfig population() {
  PopulationConfig options;
  options.devices = {parse_device("cuda:0")};
  options.lanes = 64;
  options.batch = 256;
  options.epochs = 12;
  options.source.synthetic_train = 2048;
  options.source.synthetic_test = 256;
  return options;
}

TEST_F(MemoryPlanCuda, HoldsForAPopulation) {
  MemoryMeter meter;
  const PopulationConfig options = population();
  const auto dataset = data_for(options);
  meter.note("data");
  testing::OneShard trainer(options, setup_for(options, dataset));
  meter.note("networks, optimiser, batches, last good states");
  for (int epoch = 0; epoch < 3; ++epoch) trainer.train_epoch();
  meter.expect_planned("population, nothing grows",
                       job_parts(needs_for(options, trainer.setup()), needs_of(options)));
}

// Batches are large beside the networks: those that are made ahead count.
TEST_F(MemoryPlanCuda, HoldsForDataInHostMemory) {
  MemoryMeter meter;
  PopulationConfig options = population();
  options.lanes = 16;
  options.batch = 2048;
  options.validation_batch = 4096;
  options.source.synthetic_train = 20480;
  options.resident.validation = 4096;
  options.resident.residency = data::WantedResidency::kHost;
  const auto dataset = data_for(options);
  meter.note("data");
  testing::OneShard trainer(options, setup_for(options, dataset));
  meter.note("networks, optimiser, batches, last good states");
  for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch();
  meter.expect_planned("population, data in host memory",
                       job_parts(needs_for(options, trainer.setup()), needs_of(options)));
}

// Every blueprint has its turn in every slot of one lane; then the heaviest stands in every slot of all
// lanes.
TEST_F(MemoryPlanCuda, HoldsForAPopulationThatGrows) {
  MemoryMeter meter;
  PopulationConfig options = population();
  options.batch = 128;
  options.governor.governing = Governing::kOff;  // it would remove what is planted here, as losses jump
  const auto dataset = data_for(options);
  meter.note("data");
  testing::OneShard trainer(options, setup_for(options, dataset));
  meter.note("networks, optimiser, batches, last good states");
  grow::Lifecycle& life = trainer.lifecycle();
  const auto plant = [&](int64_t lanes, const std::string& kind) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      life.reset_lane(lane);
      for (int64_t slot = 0; slot < trainer.population().num_slots(); ++slot)
        ASSERT_TRUE(life.germinate(lane, slot,
                                   {.blueprint = trainer.population().blueprints().index_of(kind),
                                    .blend_operator = BlendOperator::kGate,
                                    .tempo_steps = 8})
                        .passed());
    }
  };
  for (const std::string& kind : trainer.population().blueprints().names()) {
    if (kind == "noop") continue;
    plant(1, kind);
    trainer.train_epoch();
  }
  meter.note("seeds of every blueprint and slot");
  plant(options.lanes, "conv_heavy");
  for (int epoch = 0; epoch < 4; ++epoch) trainer.train_epoch();
  for (int64_t lane = 0; lane < options.lanes; ++lane)
    for (int64_t slot = 0; slot < trainer.population().num_slots(); ++slot)
      ASSERT_TRUE(life.advance(lane, slot, grow::testing::healthy()).passed());
  for (int epoch = 0; epoch < 3; ++epoch) trainer.train_epoch();
  ASSERT_EQ(life.at(options.lanes - 1, 0).stage, SeedStage::kBlending);
  options.controller = "random";
  meter.expect_planned("population, all grown",
                       job_parts(needs_for(options, trainer.setup()), needs_of(options)));
}

// Growth is held back, to a seed in the smallest slot: what it comes to is the test's above. Here the policy,
// its rollout and its update are large.
TEST_F(MemoryPlanCuda, HoldsForPpo) {
  MemoryMeter meter;
  PpoConfig options;
  options.population.devices = {parse_device("cuda:0")};
  options.population.lanes = 32;
  options.population.batch = 128;
  options.population.epochs = 60;
  options.population.source.synthetic_train = 8192;
  options.population.source.synthetic_test = 256;
  options.population.time_every = 1;
  options.population.precision = Precision::kBf16;
  options.slots = {"r1c2"};
  options.max_seeds = 1;
  const PopulationConfig networks = options.population;
  const auto dataset = data_for(networks);
  meter.note("data");
  ShardSetup shard = setup_for(networks, dataset);
  const GrowthSpace space = space_of(shard);
  const PopulationNeeds needs = needs_for(networks, shard);
  std::vector<ShardSetup> shards;
  shards.push_back(std::move(shard));
  PpoTrainer trainer(options, std::move(shards));
  meter.note("networks, policy, rollout");
  for (int round = 0; round < 3; ++round) trainer.train_round();
  meter.expect_planned("ppo", job_parts(needs, jobs::needs_of(options, space)));
}

TEST_F(MemoryPlanCuda, HoldsForLinet) {
  for (const char* model : {"li_resnet18", "li_resnet50"}) {
    MemoryMeter meter;
    LinetConfig options;
    options.device = parse_device("cuda:0");
    options.model = model;
    options.batch = 64;
    options.source.synthetic_train = 400;
    options.source.synthetic_test = 64;
    options.source.synthetic_size = {128, 128};
    const auto dataset = data_for(options);
    meter.note("data");
    LinetTrainer trainer(options, dataset, kName);
    meter.note("network, optimiser, batches");
    for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch();
    meter.expect_planned(model, linet_parts({.options = options,
                                             .fields = specs_of(dataset->train),
                                             .num_classes = dataset->num_classes(),
                                             .data = {dataset->bytes(), dataset->residency},
                                             .device = kCuda}));
  }
}

}  // namespace
}  // namespace espalier::train
#endif
