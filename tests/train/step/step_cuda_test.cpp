#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <thread>

#include "espalier/tensor/captured_graphs.h"
#include "tests/support/cuda.h"
#include "tests/train/population/small_population.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

namespace espalier::train {
namespace {

using testing::copy_of_lane;
using testing::germinate;
using testing::kConvLight;
using testing::kConvSmall;
using testing::ScriptedController;
using testing::small_setup;

PopulationConfig on_cuda(int64_t lanes, bool graphs, Precision precision = Precision::kBf16) {
  PopulationConfig options = testing::small_options(lanes);
  options.devices = {parse_device("cuda")};
  options.graphs = graphs;
  options.precision = precision;
  return options;
}

// Two lanes that grow at different times, so capacities go up and down while graphs are replayed.
std::shared_ptr<ScriptedController> growth() {
  auto controller = std::make_shared<ScriptedController>();
  for (const int64_t lane : {0, 2}) {
    const int64_t later = lane == 0 ? 0 : 1;
    controller->script[{lane, 1 + later}] = germinate(0, kConvLight, 2, BlendOperator::kGate);
    controller->script[{lane, 4 + later}] = {.op = SeedOp::kAdvance, .slot = 0};
    controller->script[{lane, 6 + later}] = {.op = SeedOp::kAdvance, .slot = 0};
  }
  controller->script[{2, 3}] = germinate(2, kConvSmall);
  return controller;
}

// The largest difference of two lanes, relative to each tensor's largest value.
double distance(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (const auto& [name, tensor] : a) {
    const at::Tensor &x = tensor, &y = b.at(name);
    EXPECT_TRUE(x.isfinite().all().item<bool>()) << name;
    const double scale = x.abs().max().item<double>() + 1e-6;
    largest = std::max(largest, (x - y).abs().max().item<double>() / scale);
  }
  return largest;
}

TEST(TrainStepCuda, ReplaysWhatItDoesEagerlyOverAScheduleWithSeedsGrowing) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    const PopulationConfig with = on_cuda(3, true, precision), without = on_cuda(3, false, precision);
    testing::OneShard replayed(with, small_setup(with, growth())),
        eager(without, small_setup(without, growth()));
    for (int epoch = 1; epoch <= 8; ++epoch) {  // 32 steps, 4 per epoch: a whole schedule
      const EpochRecord a = replayed.train_epoch(), b = eager.train_epoch();
      EXPECT_EQ(replayed.population().signature(), eager.population().signature());
      for (size_t lane = 0; lane < 3; ++lane) {
        EXPECT_EQ(a.lanes[lane].outcome, LaneOutcome::kTrained);
        EXPECT_EQ(a.lanes[lane].trained.loss, b.lanes[lane].trained.loss)
            << static_cast<int>(precision) << ", epoch " << epoch << ", lane " << lane;
        EXPECT_EQ(distance(copy_of_lane(replayed, static_cast<int64_t>(lane)),
                           copy_of_lane(eager, static_cast<int64_t>(lane))),
                  0)
            << static_cast<int>(precision) << ", epoch " << epoch << ", lane " << lane;
      }
    }
    EXPECT_GE(replayed.step().graphs().work().captures, 3);
    EXPECT_EQ(eager.step().graphs().work().captures, 0);
  }
}

// Seeds of all kinds come and go where a rule draws them. With few batches between two decisions, where
// stacks keep their room, and with as many as make the exact signature the better one.
TEST(TrainStepCuda, ReplaysRandomSequencesOfSignaturesBitForBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const int64_t batches : {2, 64})
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", batches per step " + std::to_string(batches));
      const auto options = [&](bool graphs) {
        PopulationConfig made = on_cuda(4, graphs);
        made.controller = "random";
        made.batches_per_step = batches;
        made.epochs = 24;
        made.embargo = 1;
        made.gates.min_training_steps = 1;
        made.deterministic = true;
        made.seed = seed;
        return made;
      };
      testing::OneShard replayed(options(true), small_setup(options(true))),
          eager(options(false), small_setup(options(false)));
      std::set<std::string> signatures;
      for (int64_t epoch = 1; epoch <= 24; ++epoch) {
        const EpochRecord a = replayed.train_epoch(), b = eager.train_epoch();
        signatures.insert(replayed.population().signature());
        for (int64_t lane = 0; lane < 4; ++lane) {
          const std::string here = fmt::format("epoch {}, lane {}", epoch, lane);
          const auto i = static_cast<size_t>(lane);
          EXPECT_EQ(a.lanes[i].action.op, b.lanes[i].action.op) << here;
          EXPECT_EQ(a.lanes[i].validated.loss, b.lanes[i].validated.loss) << here;
          testing::expect_same_lane(copy_of_lane(replayed, lane), copy_of_lane(eager, lane), here);
        }
      }
      EXPECT_GE(std::ssize(signatures), 5) << "else nothing was captured anew";
      EXPECT_GT(replayed.shard().graph_work().captures, 5);
      EXPECT_EQ(eager.shard().graph_work().captures, 0);
    }
}

TEST(TrainStepCuda, CapturesAgainOnlyWhereTheSignatureIsNew) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const PopulationConfig options = on_cuda(3, true);
  testing::OneShard trainer(options, small_setup(options, growth()));
  std::set<std::string> signatures;
  for (int epoch = 1; epoch <= 8; ++epoch) {
    trainer.train_epoch();
    signatures.insert(trainer.population().signature());
    EXPECT_EQ(trainer.step().graphs().work().captures, std::ssize(signatures));
    EXPECT_EQ(trainer.step().graphs().work().eager, std::ssize(signatures));
  }
  EXPECT_GT(trainer.step().graphs().work().capture_seconds, 0);
}

// The first run is eager, the second captures, the third only replays: each is one step.
TEST(TrainStepCuda, MakesOneStepARunWhetherItCapturesOrNot) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const PopulationConfig with = on_cuda(2, true), without = on_cuda(2, false);
  testing::OneShard replayed(with, small_setup(with)), eager(without, small_setup(without));
  for (testing::OneShard* trainer : {&replayed, &eager}) trainer->step().begin_epoch(0);
  for (int64_t run = 1; run <= 3; ++run) {
    replayed.step().run();
    eager.step().run();
    EXPECT_EQ(replayed.step().graphs().work().captures, run == 1 ? 0 : 1);
    for (int64_t lane = 0; lane < 2; ++lane)
      testing::expect_same_lane(copy_of_lane(replayed, lane), copy_of_lane(eager, lane),
                                "lane after run " + std::to_string(run));
    EXPECT_EQ(replayed.step().metrics()[0].loss, eager.step().metrics()[0].loss);
  }
  EXPECT_EQ(replayed.step().graphs().work().eager, 1);
}

TEST(TrainStepCuda, NeitherWaitsForTheDeviceNorAllocatesInTheSteadyState) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const bool graphs : {true, false}) {
    const PopulationConfig options = on_cuda(3, graphs);
    testing::OneShard trainer(options, small_setup(options, growth()));
    for (int epoch = 1; epoch <= 3; ++epoch) trainer.train_epoch();
    trainer.step().begin_epoch(3);
    trainer.step().run();
    const auto device = c10::cuda::current_device();
    const auto allocated = [&] {
      const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device);
      return std::pair(stats.num_device_alloc, graphs ? stats.allocation[0].allocated : 0);
    };
    const auto before = allocated();
    auto& state = c10::cuda::warning_state();
    state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
    EXPECT_NO_THROW(for (int i = 0; i < 3; ++i) trainer.step().run()) << "graphs " << graphs;
    state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
    EXPECT_EQ(allocated(), before) << "graphs " << graphs;
  }
}

TEST(TrainStepCuda, LeavesOutALaneThatIsNotFiniteAndNoOther) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const PopulationConfig options = on_cuda(3, true);
  testing::OneShard sound(options, small_setup(options)), broken(options, small_setup(options));
  sound.train_epoch();
  broken.train_epoch();
  const auto good = copy_of_lane(broken, 1);
  testing::poison(broken, 1);
  sound.train_epoch();
  EXPECT_EQ(broken.train_epoch().lanes[1].outcome, LaneOutcome::kRolledBack);
  testing::expect_same_lane(copy_of_lane(broken, 1), good, "lane 1");
  for (const int64_t lane : {0, 2})
    testing::expect_same_lane(copy_of_lane(sound, lane), copy_of_lane(broken, lane), "another lane");
}

TEST(StepGraphsCuda, RefusesABodyThatReadsTheDevice) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor value = at::zeros({1}, at::TensorOptions(at::kCUDA));
  StepGraphs graphs({.device = value.device()});
  const auto reads = [&] {
    value.add_(1);
    static_cast<void>(value.item<float>());
  };
  graphs.run("reads", reads);
  EXPECT_ANY_THROW(graphs.run("reads", reads));
  EXPECT_EQ(graphs.num_kept(), 0);
}

TEST(StepGraphsCuda, KeepsTheGraphsThatWereUsedLast) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor value = at::zeros({1}, at::TensorOptions(at::kCUDA));
  StepGraphs graphs({.device = value.device(), .capacity = 2});
  const auto run = [&](const std::string& key) { graphs.run(key, [&] { value.add_(1); }); };
  for (const char* key : {"a", "a", "b", "b", "a", "c", "c", "a"}) run(key);
  EXPECT_EQ(graphs.work().captures, 3);
  EXPECT_EQ(graphs.work().eager, 3);
  EXPECT_EQ(graphs.num_kept(), 2);
  run("b");  // went when c came, and starts over
  EXPECT_EQ(graphs.work().captures, 3);
  run("b");
  EXPECT_EQ(graphs.work().captures, 4);
  EXPECT_EQ(graphs.work().eager, 4);
  EXPECT_EQ(value.item<float>(), 10) << "every run counts once";
}

TEST(StepGraphsCuda, RunsAKeyEagerlyAsOftenAsItIsTold) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor value = at::zeros({1}, at::TensorOptions(at::kCUDA));
  StepGraphs graphs({.device = value.device(), .eager_runs = 3});
  for (int64_t run = 1; run <= 6; ++run) {
    graphs.run("a", [&] { value.add_(1); });
    graphs.run("seen once " + std::to_string(run), [&] { value.add_(1); });
    EXPECT_EQ(graphs.work().captures, run > 3 ? 1 : 0) << run;
  }
  EXPECT_EQ(graphs.work().eager, 3 + 6);
  EXPECT_EQ(value.item<float>(), 12);
  EXPECT_ANY_THROW(StepGraphs({.device = value.device(), .eager_runs = 0}));
}

// As the writer of a checkpoint does, at any moment.
TEST(StepGraphsCuda, CapturesWhileAnotherThreadWaitsForTheDevice) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor value = at::zeros({1}, at::TensorOptions(at::kCUDA));
  c10::Event event(c10::kCUDA);
  event.record(c10::cuda::getCurrentCUDAStream(value.device().index()));
  std::atomic<bool> is_over = false;
  std::thread waiting([&] {
    while (!is_over) event.synchronize();
  });
  StepGraphs graphs({.device = value.device()});
  for (int key = 0; key < 200; ++key)
    for (int run = 0; run < 2; ++run) graphs.run(std::to_string(key), [&] { value.add_(1); });
  is_over = true;
  waiting.join();
  EXPECT_EQ(graphs.work().captures, 200);
  EXPECT_EQ(value.item<float>(), 400);
}

// What the caller queued before is seen, and what it queues after sees the run: on whichever stream it ran.
TEST(StepGraphsCuda, RunsInTheCallersOrder) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Tensor value = at::zeros({int64_t{1} << 22}, at::TensorOptions(at::kCUDA));
  StepGraphs graphs({.device = value.device()});
  for (int64_t run = 1; run <= 4; ++run) {
    for (int i = 0; i < 50; ++i) value.add_(1);
    graphs.run("double", [&] { value.mul_(2); });
    const at::Tensor seen = value.clone();
    value.zero_();
    EXPECT_TRUE(seen.eq(100).all().item<bool>()) << "run " << run;
  }
}

}  // namespace
}  // namespace espalier::train
#endif
