// Losses and accuracies as people read them in the lines of training jobs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace espalier::cli {

// "2.3026", "1.04e+22", "not finite".
std::string loss_text(double loss);

// "52.10 %"; "-" of a split without samples.
std::string accuracy_text(double share, int64_t num_samples);
std::string loss_text(double loss, int64_t num_samples);

// Says once that training goes wrong: where a loss is not finite, or absurdly above what guessing gives.
class LossAlarm {
 public:
  explicit LossAlarm(double learning_rate) : learning_rate_(learning_rate) {}

  // The sentence; none where all is well, or it was said before.
  std::optional<std::string> check(double loss, int64_t num_classes);

 private:
  double learning_rate_;
  bool was_told_ = false;
};

}  // namespace espalier::cli
