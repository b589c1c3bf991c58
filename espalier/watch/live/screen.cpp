#include "espalier/watch/live/screen.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"

namespace espalier::watch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenDrawings{100};
// So often all lines are written, changed or not: a library may have written a warning over them.
constexpr std::chrono::seconds kBetweenRepaints{1};

// Signals are for the other threads: a handler that gives the terminal back then never runs in the midst of
// a frame. Faults of the thread itself stay deliverable.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&blocked, fault);
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

LiveScreen::LiveScreen(LiveViewOptions options) : view_(std::move(options)), wake_(eventfd(0, EFD_CLOEXEC)) {
  if (wake_ < 0) fail("live view: cannot make an event: too many open files?");
  const SignalsBlocked in_the_thread;
  thread_ = std::thread([this] { run(); });
}

LiveScreen::~LiveScreen() {
  ends_ = true;
  eventfd_write(wake_, 1);
  thread_.join();
  close(wake_);
}

void LiveScreen::add(const nlohmann::ordered_json& line) {
  const std::lock_guard lock(mutex_);
  view_.add(line);
}

void LiveScreen::report(std::string_view what, int64_t done, int64_t total) {
  const std::lock_guard lock(mutex_);
  view_.report(what, done, total);
}

void LiveScreen::say(std::string_view message) {
  const std::lock_guard lock(mutex_);
  view_.say(message);
}

void LiveScreen::run() {
  auto next = Clock::now();
  while (!ends_) {
    if (Clock::now() >= next) {
      draw();
      next = Clock::now() + kBetweenDrawings;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now());
    const auto timeout = static_cast<int>(std::max<int64_t>(left.count(), 0));
    for (const Key key : session_.wait_for_keys(timeout, wake_)) handle_key(key);
  }
}

void LiveScreen::handle_key(Key key) {
  const std::lock_guard lock(mutex_);
  constexpr int64_t kFar = 1'000'000;
  switch (key) {
    case Key::kQuit:
      // A signal after a second would end the process at once: a key that is held down must not.
      if (pending_interrupt() == 0) kill(getpid(), SIGINT);
      return;
    case Key::kUp:
      return view_.scroll(-1);
    case Key::kDown:
      return view_.scroll(1);
    case Key::kPageUp:
      return view_.scroll_page(-1);
    case Key::kPageDown:
      return view_.scroll_page(1);
    case Key::kHome:
      return view_.scroll(-kFar);
    case Key::kEnd:
      return view_.scroll(kFar);
  }
}

void LiveScreen::draw() {
  const TerminalSession::Screen screen = session_.take();
  if (screen == TerminalSession::Screen::kNotOurs) return;
  const TerminalSize size = terminal_size();
  std::vector<std::string> lines;
  {
    const std::lock_guard lock(mutex_);
    if (pending_interrupt() != 0) view_.stop_asked();
    // The last column stays free: some terminals wrap when it is written.
    lines = view_.frame(size.columns - 1, size.rows);
  }
  const double now = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  const bool is_new = screen == TerminalSession::Screen::kJustTaken || size.columns != size_.columns ||
                      size.rows != size_.rows;
  const bool is_repaint =
      is_new || now - repainted_ >= std::chrono::duration<double>(kBetweenRepaints).count();
  std::string text = is_new ? "\033[2J" : "";
  for (size_t i = 0; i < lines.size(); ++i)
    if (is_repaint || i >= shown_.size() || lines[i] != shown_[i])
      text += fmt::format("\033[{};1H{}\033[K", i + 1, lines[i]);
  if (is_repaint || lines.size() < shown_.size())
    if (std::ssize(lines) < size.rows) text += fmt::format("\033[{};1H\033[J", lines.size() + 1);
  session_.write(text);
  if (is_repaint) repainted_ = now;
  size_ = size;
  shown_ = std::move(lines);
}

}  // namespace espalier::watch
