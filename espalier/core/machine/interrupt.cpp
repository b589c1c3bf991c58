#include "espalier/core/machine/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>

namespace espalier {
namespace {

// When the first signal came, on the monotonic clock; 0: none did. Whoever stores it is the first: a handler
// that interrupts this one, or runs in another thread, finds it there.
std::atomic<int64_t> first_ns{0};
std::atomic<int> first_signal{0};
std::atomic<void (*)()> last_act_of_all{nullptr};
std::atomic<bool> is_agreed_on{false};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free &&
                  std::atomic<void (*)()>::is_always_lock_free,
              "a signal handler may touch them only so");

constexpr int64_t kOneSignalNs = 1'000'000'000;

// clock_gettime is among the calls that POSIX allows in a handler.
int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int code_of(int signal) {
  return 128 + (signal == SIGUSR1 ? SIGTERM : signal);
}

void on_signal(int signal) {
  const int saved_errno = errno;
  void (*const last_act)() = last_act_of_all.load();
  const int64_t now = now_ns();
  int64_t first = 0;
  if (!first_ns.compare_exchange_strong(first, now)) {
    if (now - first >= kOneSignalNs) {
      if (last_act != nullptr) last_act();
      _exit(code_of(signal));
    }
    errno = saved_errno;
    return;
  }
  first_signal.store(signal);
  if (last_act == nullptr) {
    // The newline leaves a progress bar's line, where there may be one.
    constexpr std::string_view kTerminal =
        "\nespalier: stopping; press Ctrl-C again, after a second, to stop at once\n";
    constexpr std::string_view kPlain =
        "espalier: stopping; the same signal again, after a second, stops at once\n";
    const std::string_view text = isatty(STDERR_FILENO) == 1 ? kTerminal : kPlain;
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  }
  errno = saved_errno;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // reads and writes go on: the flag is asked for between them
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    struct sigaction old {};
    // A shell starts background jobs with SIGINT ignored; so it stays.
    if (sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    sigaction(signal, &action, nullptr);
  }
}

int Interrupted::exit_code() const {
  return code_of(signal_);
}

void set_last_act(void (*last_act)()) {
  last_act_of_all.store(last_act);
}

void perform_last_act() {
  if (void (*const last_act)() = last_act_of_all.load()) last_act();
}

int pending_interrupt() {
  return first_signal.load();
}

void leave_interrupts_to_an_agreement() {
  is_agreed_on.store(true);
}

void throw_if_interrupted() {
  if (is_agreed_on.load()) return;
  if (const int signal = pending_interrupt(); signal != 0) throw Interrupted(signal);
}

}  // namespace espalier
