// Tells after every epoch which lanes collapsed, on the device, for all lanes at once, from what the epoch's
// reading has anyway: so the verdict is there before anyone acts.
//
// Three signs, against what the lane showed in its last good epoch:
//   the training loss jumped (GovernorConfig);
//   the validation loss jumped, and the training loss rose;
//   validation accuracy fell to the level of guessing, at once or over several epochs, was once well above
//   it, and the training loss rose.
// Validation alone may swing in a sound network whose rate is high, since batch norm's running statistics lag
// behind; and it is alone where a network breaks in the last batches of an epoch, which its training loss
// shows in the next. So such an epoch is doubtful, and the next one tells:
//   training rose above the last good epoch, and validation says the same again: a collapse;
//   training did not rise: the network was sound, and this epoch is, whatever validation says;
//   training rose, and there was no validation: still doubtful.
// Before kLeastSteps good epochs nothing has jumped. Where one class is all that validation has, guessing is
// as good as knowing, and nothing is judged by it.
//
// Kept true: a lane's verdict depends on its own epochs alone; an epoch that was not sound leaves no trace
// but a doubt, so that a lane which goes back is compared with what it goes back to; doubts end with the next
// validation at the latest, so what a lane goes back to is never older than that; an epoch that was not
// validated is judged by training alone, and what is remembered of validation stays: its usual change is that
// from one validation to the next; nothing is read on the host, and everything lies where it did.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/core/lane_outcome.h"
#include "espalier/tensor/named.h"
#include "espalier/train/population/governor_config.h"

namespace espalier::train {

// What a network reaches that has learned nothing.
struct GuessingLevel {
  double accuracy = 0;      // where it always answers with the most frequent class
  int64_t num_samples = 0;  // scored by a validation; 0: none, and nothing is judged by it
  double loss = 0;          // where all classes are as likely: log(classes); 0: no floor for jumps
};

class Governor {
 public:
  static constexpr int64_t kLeastSteps = 4;  // three changes: fewer have no usual size

  Governor(const GovernorConfig& config, const GuessingLevel& guessing, int64_t lanes, at::Device device);

  void begin();  // all lanes begin anew
  // What a lane showed so far is no measure any more: it was another network's, since a seed that it felt is
  // gone, or it cannot be reached again. No loss is a jump, and no accuracy a fall to guessing, until it has
  // shown what it is now. The last scores and their number stay.
  void forget(int64_t lane);

  struct Epoch {
    at::Tensor train_loss;                // [L] f64
    at::Tensor validation_loss = {};      // [L] f64; undefined: the epoch was not validated
    at::Tensor validation_accuracy = {};  // [L] f64, in [0, 1]; the same
    at::Tensor not_finite;                // [L] bool
  };
  // [L] f64 on the device: the numbers of Verdict. Remembers what was sound.
  at::Tensor judge(const Epoch& epoch);
  static at::Tensor has_collapsed(const at::Tensor& verdict);  // [L] bool: is_collapse() of each

  // What the last epoch came to that was validated and no collapse; 0 before.
  const at::Tensor& validation_loss() const { return loss_; }          // [L] f64
  const at::Tensor& validation_accuracy() const { return accuracy_; }  // [L] f64
  const at::Tensor& num_validated() const { return num_validated_; }   // [L] f64: such epochs

  std::vector<NamedTensor> state() const;  // what a checkpoint in the middle of an episode holds

 private:
  // A loss and how much it usually changes.
  struct Loss {
    at::Tensor num_good;     // [L] f64: good epochs that it was measured in, since what is forgotten
    at::Tensor last;         // [L] f64: after the last of them
    at::Tensor mean_square;  // [L] f64: of its changes
  };

  Loss empty_loss() const;
  at::Tensor has_jumped(const Loss& loss, const at::Tensor& now) const;
  at::Tensor is_guessing(const at::Tensor& accuracy) const;
  void remember(Loss& loss, const at::Tensor& now, const at::Tensor& sound) const;

  GovernorConfig config_;
  double guessing_below_;  // an accuracy
  double learned_above_;   // an accuracy
  double jumps_above_;     // a loss
  at::TensorOptions numbers_;
  int64_t lanes_;
  Loss trained_;
  Loss validated_;
  at::Tensor is_doubtful_;    // [L] bool: the last epoch was
  at::Tensor num_validated_;  // [L] f64: epochs that were validated and no collapse
  at::Tensor loss_;           // [L] f64: of validation, after the last of them
  at::Tensor accuracy_;       // [L] f64: the same
  at::Tensor best_;           // [L] f64: the highest accuracy of good epochs, since what is forgotten
};

}  // namespace espalier::train
