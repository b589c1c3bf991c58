#include "espalier/cli/stop_deadline.h"

#include <unistd.h>

#include "espalier/core/machine/interrupt.h"

namespace espalier::cli {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(100);

}  // namespace

StopDeadline::StopDeadline(std::chrono::milliseconds longest)
    : thread_([this, longest] { watch(longest); }) {}

StopDeadline::~StopDeadline() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool StopDeadline::is_over_within(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [&] { return is_over_; });
}

void StopDeadline::watch(std::chrono::milliseconds longest) {
  while (pending_interrupt() == 0)
    if (is_over_within(kBetweenLooks)) return;
  // Destructors are not waited for: the computing thread is not between two pieces of work, and may not get
  // there.
  if (!is_over_within(longest)) _exit(Interrupted(pending_interrupt()).exit_code());
}

}  // namespace espalier::cli
