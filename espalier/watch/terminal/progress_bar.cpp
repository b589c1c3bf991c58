#include "espalier/watch/terminal/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace espalier::watch {
namespace {

using Clock = std::chrono::steady_clock;

// At most `limit` columns, without control characters: a file's name must not move the cursor.
std::string printable(std::string_view text, size_t limit) {
  std::string out;
  size_t used = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) != 0x80 && ++used > limit) break;
    out.push_back(byte < 0x20 || byte == 0x7F ? '?' : c);
  }
  return out;
}

class Printer {
 public:
  explicit Printer(ProgressStyle style)
      : style_(std::move(style)),
        exceptions_(std::uncaught_exceptions()),
        watcher_([this] { watch_clock(); }) {}

  ~Printer() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      if (is_open_) close(std::uncaught_exceptions() > exceptions_ ? Ending::kBroken : Ending::kComplete);
    }
    wake_.notify_all();
    watcher_.join();
  }
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  void report(std::string_view what, int64_t done, int64_t total) {
    const std::lock_guard lock(mutex_);
    const bool is_new = what != what_;
    if (is_open_ && is_new) close(Ending::kComplete);
    if (!is_open_) {
      // The last report may be repeated by the thread that finished last.
      if (!is_new && done >= total && total > 0) return;
      open(what);
      wake_.notify_all();
    }
    done_ = done;
    total_ = total;
    if (total > 0 && done >= total) {
      close(Ending::kComplete);
    } else if (style_.shape == ProgressShape::kBar && Clock::now() - last_output_ >= style_.redraw) {
      draw();
    }
  }

 private:
  enum class Ending : uint8_t { kComplete, kBroken };

  void open(std::string_view what) {
    what_ = what;
    is_open_ = true;
    has_spoken_ = false;
    begin_ = last_output_ = Clock::now();
    if (style_.shape == ProgressShape::kBar) last_output_ -= style_.redraw;
  }

  void close(Ending ending) {
    is_open_ = false;
    const bool is_whole = total_ == 0 || done_ >= total_;
    if (style_.shape == ProgressShape::kBar) {
      draw();
      style_.write("\n");
      drawn_columns_ = 0;
    } else if (ending == Ending::kComplete && is_whole) {
      style_.write(fmt::format("{}: {} in {}\n", printable(what_, kLongestName), short_count(done_),
                               seconds_text(elapsed())));
    }
  }

  // Speaks for work that reports nothing for a while.
  void watch_clock() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      const bool is_bar = style_.shape == ProgressShape::kBar;
      const auto interval = is_bar ? kTick : has_spoken_ ? style_.next_line : style_.first_line;
      // Never 0: this loop gives the lock away only while it waits.
      const auto wait = std::max(interval, std::chrono::milliseconds(1));
      if (!is_open_) {
        wake_.wait(lock, [this] { return ends_ || is_open_; });
        continue;
      }
      const auto due = last_output_ + wait;
      if (Clock::now() < due) {
        wake_.wait_until(lock, due);
        continue;
      }
      is_bar ? draw() : speak();
    }
  }

  void speak() {
    has_spoken_ = true;
    last_output_ = Clock::now();
    const std::string name = printable(what_, kLongestName);
    style_.write(total_ > 0 ? fmt::format("{}: {} of {} ({} %), {}\n", name, short_count(done_),
                                          short_count(total_), percent(), seconds_text(elapsed()))
                            : fmt::format("{}: {}, {}\n", name, short_count(done_), seconds_text(elapsed())));
  }

  void draw() {
    last_output_ = Clock::now();
    // The last column stays free: some terminals wrap when it is written.
    const auto width = static_cast<size_t>(std::max(style_.columns(), 20) - 1);
    std::string line = printable(what_, width / 2);
    std::string tail = total_ > 0 ? fmt::format(" {:3} %  {} of {}  {}", percent(), short_count(done_),
                                                short_count(total_), time_text())
                                  : fmt::format("  {}  {}", short_count(done_), time_text());
    size_t used = display_columns(line) + tail.size();
    constexpr size_t kFrame = 3;  // a space and two brackets
    constexpr size_t kWidest = 40;
    if (total_ > 0 && used + kFrame + 5 <= width) {
      const size_t cells = std::min(width - used - kFrame, kWidest);
      const auto filled = static_cast<size_t>(share() * static_cast<double>(cells));
      line += " [" + painted(std::string(filled, '='), Color::kGreen, style_.is_colored) +
              std::string(cells - filled, ' ') + "]";
      used += cells + kFrame;
    }
    if (used > width) tail = printable(tail, width - std::min(width, display_columns(line)));
    line += tail;
    used = std::min(used, width);
    // Spaces over what a longer line left, rather than an escape sequence.
    const size_t rest = std::min(drawn_columns_, width) > used ? std::min(drawn_columns_, width) - used : 0;
    style_.write("\r" + line + std::string(rest, ' '));
    drawn_columns_ = used;
  }

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  double share() const {
    return std::clamp(static_cast<double>(done_) / static_cast<double>(total_), 0.0, 1.0);
  }
  int percent() const { return static_cast<int>(100 * share()); }
  // Time left once a part is done, else the time gone by.
  std::string time_text() const {
    const bool is_estimated = is_open_ && total_ > 0 && done_ > 0;
    return is_estimated ? seconds_text(elapsed() * (1 / share() - 1)) + " left" : seconds_text(elapsed());
  }

  static constexpr size_t kLongestName = 200;
  static constexpr std::chrono::milliseconds kTick{1000};  // a bar's clock moves at least so often

  const ProgressStyle style_;
  const int exceptions_;
  std::mutex mutex_;  // guards all below
  std::condition_variable wake_;
  std::string what_;
  int64_t done_ = 0;
  int64_t total_ = 0;
  bool is_open_ = false;
  bool has_spoken_ = false;  // a line of the open work was written
  bool ends_ = false;
  size_t drawn_columns_ = 0;
  Clock::time_point begin_;
  Clock::time_point last_output_;
  std::thread watcher_;  // last: it uses all the others
};

}  // namespace

ProgressStyle stderr_style(ColorChoice color) {
  ProgressStyle style;
  style.shape = is_interactive(STDERR_FILENO) ? ProgressShape::kBar : ProgressShape::kLines;
  style.is_colored = style.shape == ProgressShape::kBar && uses_color(color, STDERR_FILENO);
  style.columns = [] { return columns(STDERR_FILENO); };
  style.write = [](std::string_view text) {
    // One call a piece, so that pieces of several processes do not mix; a closed stderr is no reason to stop.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  };
  return style;
}

Progress make_progress(ProgressStyle style) {
  return [printer = std::make_shared<Printer>(std::move(style))](
             std::string_view what, int64_t done, int64_t total) { printer->report(what, done, total); };
}

std::string seconds_text(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  const auto minutes = static_cast<int64_t>(seconds / 60);
  return minutes < 120 ? fmt::format("{} min", minutes) : fmt::format("{:.1f} h", seconds / 3600);
}

std::string short_count(int64_t count) {
  constexpr std::array<std::pair<double, char>, 4> kUnits = {
      {{1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}}};
  constexpr int64_t kShortEnough = 100'000;
  if (std::abs(count) < kShortEnough) return fmt::format("{}", count);
  const auto value = static_cast<double>(count);
  for (const auto& [size, letter] : kUnits) {
    // 999,960 would print as "1000.0k": the next unit says it better.
    if (std::abs(value) >= 0.9999 * size) return fmt::format("{:.1f}{}", value / size, letter);
  }
  return fmt::format("{}", count);
}

}  // namespace espalier::watch
