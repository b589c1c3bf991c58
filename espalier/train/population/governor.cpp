#include "espalier/train/population/governor.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

namespace espalier::train {
namespace {

double standard_error(const GuessingLevel& guessing) {
  return std::sqrt(guessing.accuracy * (1 - guessing.accuracy) / static_cast<double>(guessing.num_samples));
}

}  // namespace

Governor::Governor(const GovernorConfig& config, const GuessingLevel& guessing, int64_t lanes,
                   at::Device device)
    : config_(config),
      guessing_below_(-1),
      learned_above_(std::numeric_limits<double>::infinity()),
      jumps_above_(config.floor * guessing.loss),
      numbers_(at::TensorOptions(at::kDouble).device(device)),
      lanes_(lanes),
      trained_(empty_loss()),
      validated_(empty_loss()),
      is_doubtful_(at::zeros({lanes}, numbers_.dtype(at::kBool))),
      num_validated_(at::zeros({lanes}, numbers_)),
      loss_(at::zeros({lanes}, numbers_)),
      accuracy_(at::zeros({lanes}, numbers_)),
      best_(at::zeros({lanes}, numbers_)) {
  if (guessing.num_samples == 0 || guessing.accuracy >= 1) return;
  guessing_below_ = guessing.accuracy + config.margin * standard_error(guessing);
  learned_above_ = guessing.accuracy + 3 * config.margin * standard_error(guessing);
}

Governor::Loss Governor::empty_loss() const {
  return {.num_good = at::zeros({lanes_}, numbers_),
          .last = at::zeros({lanes_}, numbers_),
          .mean_square = at::zeros({lanes_}, numbers_)};
}

void Governor::begin() {
  for (const NamedTensor& each : state()) each.tensor.zero_();
}

void Governor::forget(int64_t lane) {
  for (const at::Tensor& each : {trained_.num_good, validated_.num_good, is_doubtful_, best_})
    each.select(0, lane).zero_();
}

at::Tensor Governor::judge(const Epoch& epoch) {
  const bool is_validated = epoch.validation_loss.defined();
  at::Tensor verdict = at::zeros_like(accuracy_);
  const auto set = [&](const at::Tensor& where, Verdict to) {
    verdict.masked_fill_(where, static_cast<double>(to));
  };
  if (config_.governing == Governing::kOn) {
    const at::Tensor rose = trained_.num_good.gt(0).logical_and(epoch.train_loss.gt(trained_.last));
    at::Tensor jumped = has_jumped(trained_, epoch.train_loss);
    if (is_validated) {
      const at::Tensor soared = has_jumped(validated_, epoch.validation_loss);
      const at::Tensor guesses = is_guessing(epoch.validation_accuracy);
      set(soared.logical_or(guesses).logical_and(is_doubtful_.logical_not()), Verdict::kDoubtful);
      set(rose.logical_and(guesses), Verdict::kGuessing);
      jumped = jumped.logical_or(rose.logical_and(soared));
    } else {
      set(rose.logical_and(is_doubtful_), Verdict::kDoubtful);
    }
    set(jumped, Verdict::kLossJumped);
  }
  set(epoch.not_finite, Verdict::kNotFinite);

  const at::Tensor sound = verdict.eq(static_cast<double>(Verdict::kSound));
  is_doubtful_.copy_(verdict.eq(static_cast<double>(Verdict::kDoubtful)));
  remember(trained_, epoch.train_loss, sound);
  if (is_validated) {
    remember(validated_, epoch.validation_loss, sound);
    const at::Tensor counts = has_collapsed(verdict).logical_not();
    num_validated_.add_(counts);
    loss_.copy_(at::where(counts, epoch.validation_loss, loss_));
    accuracy_.copy_(at::where(counts, epoch.validation_accuracy, accuracy_));
    best_.copy_(at::where(sound, at::maximum(best_, epoch.validation_accuracy), best_));
  }
  return verdict;
}

at::Tensor Governor::has_collapsed(const at::Tensor& verdict) {
  return verdict.ne(static_cast<double>(Verdict::kSound))
      .logical_and_(verdict.ne(static_cast<double>(Verdict::kDoubtful)));
}

at::Tensor Governor::has_jumped(const Loss& loss, const at::Tensor& now) const {
  const at::Tensor usual = at::sqrt(loss.mean_square);
  return now.gt(loss.last * config_.ratio)
      .logical_and_((now - loss.last).gt(usual * config_.spread))
      .logical_and_(now.gt(jumps_above_))
      .logical_and_(loss.num_good.ge(kLeastSteps));
}

at::Tensor Governor::is_guessing(const at::Tensor& accuracy) const {
  return accuracy.le(guessing_below_).logical_and_(accuracy.lt(best_)).logical_and_(best_.ge(learned_above_));
}

// The plain mean of the first changes, then one that forgets: the n-th weighs 1/n, at least 1/window.
void Governor::remember(Loss& loss, const at::Tensor& now, const at::Tensor& sound) const {
  const at::Tensor change = (now - loss.last).square();
  const at::Tensor weight = loss.num_good.clamp(1, static_cast<double>(config_.window)).reciprocal();
  const at::Tensor mean = loss.mean_square + (change - loss.mean_square) * weight;
  loss.mean_square.copy_(at::where(sound.logical_and(loss.num_good.ge(1)), mean, loss.mean_square));
  loss.last.copy_(at::where(sound, now, loss.last));
  loss.num_good.add_(sound);
}

std::vector<NamedTensor> Governor::state() const {
  return {{"governor.num_good", trained_.num_good},
          {"governor.num_validated_since", validated_.num_good},
          {"governor.is_doubtful", is_doubtful_},
          {"governor.num_validated", num_validated_},
          {"governor.last_validation_loss", loss_},
          {"governor.train_loss", trained_.last},
          {"governor.train_loss_change", trained_.mean_square},
          {"governor.validation_loss", validated_.last},
          {"governor.validation_loss_change", validated_.mean_square},
          {"governor.accuracy", accuracy_},
          {"governor.best_accuracy", best_}};
}

}  // namespace espalier::train
