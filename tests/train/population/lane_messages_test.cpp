#include "espalier/train/population/lane_messages.h"

#include <gtest/gtest.h>

#include <cstring>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::train {
namespace {

LaneMessage full_message() {
  SlotReport slot{.state = {.stage = SeedStage::kHolding, .blueprint = 3, .amplitude = 0.5f}};
  slot.measured = {.finite = false, .gradient_norm = 1.5, .contribution_points = -2.0};
  LaneMessage message{
      .entry = {
          .env = 5, .states = {slot.state}, .added_parameters = 0.25f, .num_batches = 7, .sums = {1, 2, 3}}};
  LaneRecord& record = message.record;
  record = {.lane = 5,
            .outcome = LaneOutcome::kRolledBack,
            .validated = {0.5, 0.75},
            .last_validated = {0.25, 0.125},
            .good_accuracy = 0.375,
            .rate_factor = 0.5,
            .num_rollbacks = 1,
            .compared_anew = true,
            .num_parameters = 42};
  record.trained = {.loss = 1,
                    .accuracy = 2,
                    .gradient_norm = 3,
                    .largest_norm = 4,
                    .non_finite = 5,
                    .skipped = 6,
                    .loss_scale = 7,
                    .slots = {8}};
  record.slots = {slot};
  record.action = {.op = SeedOp::kPrune, .slot = 2};
  record.gate = {.gate = grow::Gate::kG2, .checks = {{"training_steps", false, "2 of 3"}}};
  record.reward = {.terms = {0.1, 0.2}, .counts = true};
  message.report = LaneReport{.lane = 5,
                              .epoch = 6,
                              .num_epochs = 7,
                              .train_loss = 1,
                              .train_accuracy = 2,
                              .is_validated = false,
                              .validation_loss = 3,
                              .validation_accuracy = 4,
                              .accuracies = {0.1, 0.2},
                              .host_gradient_norm = 5,
                              .slots = {slot},
                              .carried = {9}};
  return message;
}

TEST(LaneMessages, BringEveryFieldBack) {
  LaneMessage second = full_message();
  second.report.reset();
  second.entry.env = 6;
  const std::vector<std::byte> bytes = encode(std::vector<LaneMessage>{full_message(), second});
  const std::vector<LaneMessage> read = lane_messages_in(bytes);
  ASSERT_EQ(read.size(), 2u);
  // Written again, they are the same bytes: nothing was lost or changed on the way.
  EXPECT_EQ(encode(read), bytes);
  EXPECT_EQ(read[0].record.num_parameters, 42);
  EXPECT_TRUE(read[0].record.compared_anew);
  EXPECT_EQ(read[0].record.last_validated.accuracy, 0.125);
  EXPECT_EQ(read[0].record.good_accuracy, 0.375);
  EXPECT_FALSE(read[0].report->is_validated);
  EXPECT_EQ(read[0].record.trained.slots, std::vector<double>{8});
  EXPECT_EQ(read[0].record.slots[0].measured.contribution_points, -2.0);
  EXPECT_FALSE(read[0].record.slots[0].measured.gradient_ratio);
  EXPECT_EQ(read[0].record.slots[0].state.blueprint, 3);
  EXPECT_EQ(read[0].record.gate.summary(), "G2 failed: training_steps (2 of 3)");
  EXPECT_TRUE(read[0].record.reward.counts);
  EXPECT_EQ(read[0].report->accuracies, (std::vector<double>{0.1, 0.2}));
  EXPECT_EQ(read[0].entry.sums, (std::vector<double>{1, 2, 3}));
  EXPECT_FALSE(read[1].report);
  EXPECT_EQ(read[1].entry.env, 6);
}

TEST(LaneMessages, CarryWhatGatesSaid) {
  const std::vector<GateMessage> read =
      gate_messages_in(encode(std::vector<GateMessage>{{3, full_message().record.gate}}));
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].lane, 3);
  EXPECT_EQ(read[0].gate.checks[0].detail, "2 of 3");
  EXPECT_TRUE(gate_messages_in({}).empty()) << "a rank that has nothing to say";
}

TEST(LaneMessages, RefuseBytesThatAreTooManyOrTooFew) {
  std::vector<std::byte> bytes = encode(std::vector<LaneMessage>{full_message()});
  bytes.push_back(std::byte{0});
  EXPECT_ERROR(lane_messages_in(bytes), Error, "too long");
  bytes.resize(bytes.size() - 2);
  EXPECT_ERROR(lane_messages_in(bytes), Error, "a message between ranks");
}

}  // namespace
}  // namespace espalier::train
