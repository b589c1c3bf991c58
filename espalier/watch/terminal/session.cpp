#include "espalier/watch/terminal/session.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"

namespace espalier::watch {
namespace {

constexpr std::string_view kTake = "\033[?1049h\033[?25l\033[H\033[2J";
constexpr std::string_view kGiveBack = "\033[0m\033[?25h\033[?1049l";

// What signal handlers need is the process's, and plain.
struct Taken {
  std::atomic<bool> may_take{false};  // no: given back for good, or until a stopped process goes on
  std::atomic<bool> is_ours{false};
  std::atomic<bool> is_writing{false};
  bool has_modes = false;  // standard input is a terminal too
  termios modes{};         // as they were
};
Taken taken;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may touch it only so");

constexpr std::array kDeadly = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGQUIT, SIGHUP, SIGTSTP};
std::array<struct sigaction, kDeadly.size()> handlers_before;
std::terminate_handler terminate_before = nullptr;

void write_all(std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;  // the terminal is gone
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

// Safe in a signal handler; does nothing the second time. Whatever take() is about: either it sees that it
// may not, or this sees that the terminal is ours and waits until take() is through.
void give_back() {
  taken.may_take = false;
  if (!taken.is_ours.exchange(false)) return;
  const int saved_errno = errno;
  // A frame that another thread is writing comes first: on the normal screen it would be garbage. Not for
  // ever: this may be that thread's own handler.
  for (int i = 0; i < 100 && taken.is_writing; ++i) poll(nullptr, 0, 1);
  write_all(kGiveBack);
  if (taken.has_modes) tcsetattr(STDIN_FILENO, TCSANOW, &taken.modes);
  errno = saved_errno;
}

void on_deadly_signal(int signal) {
  give_back();
  if (signal == SIGTSTP) {
    raise(SIGSTOP);
    taken.may_take = true;  // the process goes on
    return;
  }
  // The signal is blocked until this returns: then it meets whoever had it before.
  for (size_t i = 0; i < kDeadly.size(); ++i)
    if (kDeadly[i] == signal) sigaction(signal, &handlers_before[i], nullptr);
  raise(signal);
}

void on_terminate() {
  give_back();  // first, so that the message is not lost
  if (terminate_before != nullptr) terminate_before();
  std::abort();
}

void catch_deadly_signals() {
  struct sigaction action {};
  action.sa_handler = on_deadly_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kDeadly.size(); ++i) {
    sigaction(kDeadly[i], nullptr, &handlers_before[i]);
    if (handlers_before[i].sa_handler != SIG_IGN) sigaction(kDeadly[i], &action, nullptr);
  }
  terminate_before = std::set_terminate(on_terminate);
  [[maybe_unused]] static const int registered = std::atexit(give_back);
  set_last_act(give_back);
}

void release_deadly_signals() {
  set_last_act(nullptr);
  std::set_terminate(terminate_before);
  for (size_t i = 0; i < kDeadly.size(); ++i) sigaction(kDeadly[i], &handlers_before[i], nullptr);
}

// A terminal that does not control the process knows no background.
bool is_in_foreground() {
  const pid_t group = tcgetpgrp(STDOUT_FILENO);
  return group < 0 || group == getpgrp();
}

struct Sequence {
  std::string_view bytes;
  Key key;
};
constexpr std::array kSequences = std::to_array<Sequence>({{"q", Key::kQuit},
                                                           {"Q", Key::kQuit},
                                                           {"k", Key::kUp},
                                                           {"j", Key::kDown},
                                                           {" ", Key::kPageDown},
                                                           {"\033[A", Key::kUp},
                                                           {"\033OA", Key::kUp},
                                                           {"\033[B", Key::kDown},
                                                           {"\033OB", Key::kDown},
                                                           {"\033[5~", Key::kPageUp},
                                                           {"\033[6~", Key::kPageDown},
                                                           {"\033[H", Key::kHome},
                                                           {"\033OH", Key::kHome},
                                                           {"\033[1~", Key::kHome},
                                                           {"\033[F", Key::kEnd},
                                                           {"\033OF", Key::kEnd},
                                                           {"\033[4~", Key::kEnd}});

// ESC, then [ or O with parameters and a final byte; or one byte.
bool is_complete(std::string_view begun) {
  if (begun[0] != '\033') return true;
  if (begun.size() == 1) return false;
  if (begun[1] == 'O') return begun.size() == 3;
  if (begun[1] != '[') return true;
  return begun.size() > 2 && begun.back() >= 0x40 && begun.back() <= 0x7E;
}

}  // namespace

std::vector<Key> KeyReader::read(std::string_view bytes) {
  std::vector<Key> keys;
  constexpr size_t kLongest = 16;
  for (const char byte : bytes) {
    if (byte == '\033') begun_.clear();  // a key that was Escape itself
    begun_.push_back(byte);
    if (!is_complete(begun_) && begun_.size() < kLongest) continue;
    for (const Sequence& known : kSequences)
      if (known.bytes == begun_) keys.push_back(known.key);
    begun_.clear();
  }
  return keys;
}

TerminalSize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

TerminalSession::TerminalSession() : can_read_(isatty(STDIN_FILENO) == 1) {
  if (taken.is_ours) fail("TerminalSession: want one at a time");
  catch_deadly_signals();
  taken.may_take = true;
}

TerminalSession::~TerminalSession() {
  give_back();
  release_deadly_signals();
}

TerminalSession::Screen TerminalSession::take() {
  if (taken.is_ours) return Screen::kOurs;
  if (!taken.may_take || !is_in_foreground()) return Screen::kNotOurs;
  taken.has_modes = can_read_ && tcgetattr(STDIN_FILENO, &taken.modes) == 0;
  taken.is_writing = true;
  taken.is_ours = true;
  if (!taken.may_take) {
    taken.is_ours = taken.is_writing = false;
    return Screen::kNotOurs;
  }
  if (taken.has_modes) {
    termios modes = taken.modes;
    modes.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // ISIG stays: Ctrl-C and Ctrl-Z are signals
    modes.c_cc[VMIN] = 0;
    modes.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &modes);
  }
  write_all(kTake);
  taken.is_writing = false;
  return Screen::kJustTaken;
}

void TerminalSession::write(std::string_view text) {
  taken.is_writing = true;
  if (taken.is_ours) write_all(text);
  taken.is_writing = false;
}

std::vector<Key> TerminalSession::wait_for_keys(int timeout_ms, int also) {
  // In the background a read would stop the process.
  const bool reads = can_read_ && taken.is_ours;
  std::array<pollfd, 2> sources{{{also, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
  if (poll(sources.data(), reads ? 2 : 1, timeout_ms) <= 0 || !reads || sources[1].revents == 0) return {};
  std::array<char, 256> bytes;
  const auto count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (count <= 0) {
    can_read_ = false;  // closed
    return {};
  }
  return keys_.read({bytes.data(), static_cast<size_t>(count)});
}

}  // namespace espalier::watch
