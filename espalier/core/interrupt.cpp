#include "espalier/core/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace espalier {
namespace {

std::atomic<int> first_signal{0};
std::atomic<void (*)()> last_act_of_all{nullptr};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<void (*)()>::is_always_lock_free,
              "a signal handler may touch them only so");

int code_of(int signal) {
  return 128 + (signal == SIGUSR1 ? SIGTERM : signal);
}

void on_signal(int signal) {
  int none = 0;
  void (*const last_act)() = last_act_of_all.load();
  if (!first_signal.compare_exchange_strong(none, signal)) {
    if (last_act != nullptr) last_act();
    _exit(code_of(signal));
  }
  if (last_act != nullptr) return;
  // The newline leaves a progress bar's line, where there may be one.
  constexpr std::string_view kTerminal = "\nespalier: stopping; press Ctrl-C again to stop at once\n";
  constexpr std::string_view kPlain = "espalier: stopping; the same signal again stops at once\n";
  const int saved_errno = errno;
  const std::string_view text = isatty(STDERR_FILENO) == 1 ? kTerminal : kPlain;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
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

int pending_interrupt() {
  return first_signal.load();
}

void throw_if_interrupted() {
  if (const int signal = pending_interrupt(); signal != 0) throw Interrupted(signal);
}

}  // namespace espalier
