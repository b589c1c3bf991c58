// How long the parts of a step take on a device, sampled.
//
// Kept true: it never waits. On CUDA a part lies between two events, which are read when the next step
// begins, and left out where the device has not reached them by then; on the CPU it is the host's clock.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>

namespace espalier::train {

enum class StepPart { kTrain, kValidation, kAct };
inline constexpr size_t kNumStepParts = 3;
inline constexpr std::array<const char*, kNumStepParts> kStepPartNames{"train", "validation", "act"};

// Sums over sampled steps, of one device or several.
struct PartTimes {
  std::array<double, kNumStepParts> sum_ms{};
  std::array<int64_t, kNumStepParts> count{};

  PartTimes& operator+=(const PartTimes& other);
  std::optional<double> mean_ms(StepPart part) const;  // none where there was no sample
};

class StepTiming {
 public:
  // every: of so many steps one is sampled, the first of them; 0: none.
  StepTiming(c10::Device device, int64_t every);

  void begin_step();
  // Around a part, in the order in which the device does them; once a step each.
  void begin(StepPart part);
  void end(StepPart part);

  // What was read since the last take(), and what the device is done with by now.
  PartTimes take();

 private:
  using Clock = std::chrono::steady_clock;
  struct Mark {
    std::optional<c10::Event> began, ended;  // none on the CPU
    Clock::time_point clock;
    bool is_set = false;  // both ends, and not read yet
  };

  bool is_on_cpu() const { return device_.is_cpu(); }
  Mark& mark_of(StepPart part) { return marks_[static_cast<size_t>(part)]; }
  void read();

  c10::Device device_;
  int64_t every_;
  int64_t step_ = 0;  // begun so far
  bool is_sampled_ = false;
  std::array<Mark, kNumStepParts> marks_;
  PartTimes times_;
};

}  // namespace espalier::train
