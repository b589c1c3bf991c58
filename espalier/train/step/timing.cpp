#include "espalier/train/step/timing.h"

#include <utility>

#include "espalier/core/error.h"
#include "espalier/data/ring.h"
#include "espalier/tensor/device.h"

namespace espalier::train {

PartTimes& PartTimes::operator+=(const PartTimes& other) {
  for (size_t part = 0; part < kNumStepParts; ++part) {
    sum_ms[part] += other.sum_ms[part];
    count[part] += other.count[part];
  }
  return *this;
}

std::optional<double> PartTimes::mean_ms(StepPart part) const {
  const auto place = static_cast<size_t>(part);
  if (count[place] == 0) return std::nullopt;
  return sum_ms[place] / static_cast<double>(count[place]);
}

StepTiming::StepTiming(c10::Device device, int64_t every) : device_(device), every_(every) {
  if (every < 0) fail_usage("time-every: want 0 (never) or more, got {}", every);
  if (is_on_cpu() || every == 0) return;
  for (Mark& mark : marks_) {
    mark.began.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // with times
    mark.ended.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  }
}

void StepTiming::begin_step() {
  read();
  for (Mark& mark : marks_) mark.is_set = false;  // what was not over by now is left out
  is_sampled_ = every_ > 0 && step_ % every_ == 0;
  step_ += 1;
}

void StepTiming::begin(StepPart part) {
  if (!is_sampled_) return;
  Mark& mark = mark_of(part);
  if (is_on_cpu())
    mark.clock = Clock::now();
  else
    mark.began->record(current_stream(device_));
}

void StepTiming::end(StepPart part) {
  if (!is_sampled_) return;
  Mark& mark = mark_of(part);
  if (is_on_cpu()) {
    const auto place = static_cast<size_t>(part);
    times_.sum_ms[place] += std::chrono::duration<double, std::milli>(Clock::now() - mark.clock).count();
    times_.count[place] += 1;
  } else {
    mark.ended->record(current_stream(device_));
    mark.is_set = true;
  }
}

void StepTiming::read() {
  for (size_t part = 0; part < kNumStepParts; ++part) {
    Mark& mark = marks_[part];
    if (!mark.is_set || !mark.ended->query()) continue;
    times_.sum_ms[part] += mark.began->elapsedTime(*mark.ended);
    times_.count[part] += 1;
    mark.is_set = false;
  }
}

PartTimes StepTiming::take() {
  read();
  return std::exchange(times_, {});
}

}  // namespace espalier::train
