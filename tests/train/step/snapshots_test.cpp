#include "espalier/train/step/snapshots.h"

#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string_view>

#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

using lanes::testing::expect_lane_layout;
using testing::copy_of_lane;
using testing::expect_same_lane;

// Every parameter with its gradient and compute copy, and the optimisers' state.
void expect_layout(testing::OneShard& trainer) {
  int64_t convolutions = 0;
  for (const grow::ParameterGroup& group : trainer.population().groups())
    for (const lanes::NamedParameter& named : group.parameters) {
      expect_lane_layout(*named.parameter, group.name + "." + named.name);
      convolutions += named.parameter->value().dim() == 5 ? 1 : 0;
    }
  EXPECT_GT(convolutions, 2);  // those of the host, and the seed's
  for (const OptimizedGroup& each : trainer.step().optimizers().groups())
    for (const at::Tensor& state : each.optimizer->state())
      expect_lane_layout(state, "optimiser state of " + each.group.name);
}

TEST(LaneSnapshots, RestoreALanesBitsAndLeaveEverythingChannelsLast) {
  PopulationConfig options = testing::small_options(2);
  options.precision = Precision::kBf16;  // values and compute copies are memory of their own
  const auto controller = std::make_shared<testing::ScriptedController>();
  controller->script[{1, 1}] = testing::germinate(0, testing::kConvLight);
  testing::OneShard trainer(options, testing::small_setup(options, controller));
  for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch();
  LaneSnapshots snapshots(trainer.population(), trainer.step(), trainer.lifecycle());
  const std::vector<int64_t> lanes{0, 1};
  for (const bool into_the_same : {false, true}) {  // a first snapshot, and one over an older one
    SCOPED_TRACE(into_the_same);
    snapshots.take(lanes);
    const auto good = copy_of_lane(trainer, 1);
    trainer.train_epoch();
    snapshots.restore(1);
    expect_same_lane(copy_of_lane(trainer, 1), good, "lane 1");
    expect_layout(trainer);
    for (const lanes::LaneParameter* parameter : trainer.population().parameters())
      EXPECT_TRUE(at::equal(parameter->compute(), parameter->value().to(parameter->compute().scalar_type())));
    trainer.train_epoch();
    expect_layout(trainer);
  }
}

// Its memory is that of the older one where that has the same value, and new elsewhere.
TEST(LaneSnapshots, RestoreBitsOfALaneThatGrewSinceAnOlderOne) {
  const auto controller = std::make_shared<testing::ScriptedController>();
  controller->script[{1, 2}] = testing::germinate(0, testing::kConvLight);
  controller->script[{1, 5}] = testing::germinate(1, testing::kConvLight);
  PopulationConfig options = testing::small_options(2);
  options.epochs = 9;
  testing::OneShard trainer(options, testing::small_setup(options, controller));
  LaneSnapshots snapshots(trainer.population(), trainer.step(), trainer.lifecycle());
  const std::vector<int64_t> lanes{0, 1};
  for (int turn = 0; turn < 3; ++turn) {  // of an epoch that is undone, one that decides and one that plants
    SCOPED_TRACE(turn);
    snapshots.take(lanes);
    const auto good = copy_of_lane(trainer, 1), other = copy_of_lane(trainer, 0);
    trainer.train_epoch();
    const auto trained = copy_of_lane(trainer, 0);
    snapshots.restore(1);
    expect_same_lane(copy_of_lane(trainer, 1), good, "lane 1");
    expect_same_lane(copy_of_lane(trainer, 0), trained, "lane 0");
    snapshots.restore(0);
    expect_same_lane(copy_of_lane(trainer, 0), other, "lane 0, restored");
    for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch();
  }
  for (const int64_t slot : {0, 1}) EXPECT_TRUE(trainer.population().has_stacks(slot));
}

struct CopiedList {
  std::set<at::ScalarType> types;
  bool lies_alike = true;
};

// What torch copies as lists while this lives, in this thread.
class CopiedLists {
 public:
  CopiedLists() {
    seen().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                           if (std::string_view(function.name()) == "aten::_foreach_copy_")
                                             note(function.inputs());
                                           return std::unique_ptr<at::ObserverContext>();
                                         })
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~CopiedLists() { at::removeCallback(handle_); }
  CopiedLists(const CopiedLists&) = delete;
  CopiedLists& operator=(const CopiedLists&) = delete;

  static std::vector<CopiedList>& seen() {
    static std::vector<CopiedList> lists;
    return lists;
  }

 private:
  static void note(c10::ArrayRef<const c10::IValue> inputs) {
    const auto to = inputs[0].toTensorVector(), from = inputs[1].toTensorVector();
    CopiedList list;
    for (size_t i = 0; i < to.size(); ++i) {
      list.types.insert({to[i].scalar_type(), from[i].scalar_type()});
      list.lies_alike &= to[i].strides() == from[i].strides();
    }
    seen().push_back(list);
  }
  at::CallbackHandle handle_;
};

// One that is of another type, or lies otherwise, has a GPU copy thousands of tensors one by one: ages are
// f64.
TEST(LaneSnapshots, AreCopiedInListsThatTorchCopiesAtOnce) {
  PopulationConfig options = testing::small_options(2);
  options.seed_warm_up = 4;
  const auto controller = std::make_shared<testing::ScriptedController>();
  controller->script[{1, 1}] = testing::germinate(0, testing::kConvLight);
  testing::OneShard trainer(options, testing::small_setup(options, controller));
  for (int epoch = 0; epoch < 2; ++epoch) trainer.train_epoch();
  LaneSnapshots snapshots(trainer.population(), trainer.step(), trainer.lifecycle());
  const std::vector<int64_t> lanes{0, 1};
  snapshots.take(lanes);
  const CopiedLists lists;
  snapshots.take(lanes);
  snapshots.restore_values(1);
  std::set<at::ScalarType> types;
  for (const CopiedList& list : CopiedLists::seen()) {
    EXPECT_EQ(list.types.size(), 1);
    EXPECT_TRUE(list.lies_alike);
    types.insert(list.types.begin(), list.types.end());
  }
  EXPECT_TRUE(types.contains(at::kFloat));
  EXPECT_TRUE(types.contains(at::kDouble));
  EXPECT_EQ(CopiedLists::seen().size(), 2 * types.size());
}

}  // namespace
}  // namespace espalier::train
