// The reward rules that come with the library: one operator, with the arithmetic of terms.h.
#pragma once

#include "espalier/policy/reward/rule.h"

namespace espalier::policy {

class BuiltInReward final : public RewardRule {
 public:
  BuiltInReward(RewardMode mode, const RewardFrame& frame);

  std::vector<std::string> terms() const override;
  void begin() override;
  void compute(const RewardInput& input, const at::Tensor& terms) override;
  std::vector<NamedTensor> state() const override;

 private:
  RewardMode mode_;
  RewardFrame frame_;
  at::Tensor credit_;  // [L,S] f32 points; undefined where contributions are not paid
};

}  // namespace espalier::policy
