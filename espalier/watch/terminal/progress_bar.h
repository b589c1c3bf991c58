// Shows how far long work is: a bar that is drawn over on a terminal, plain lines elsewhere.
//
// Kept true: off a terminal no carriage return and no escape sequence is ever written; work that takes longer
// than `first_line` is never silent, even while it reports nothing (a thread watches the clock); all work
// that ends says so in one line. An error or an interrupt leaves the cursor at the start of a line.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

#include "espalier/core/progress.h"
#include "espalier/watch/terminal/colours.h"

namespace espalier::watch {

enum class ProgressShape : uint8_t { kBar, kLines };

struct ProgressStyle {
  ProgressShape shape = ProgressShape::kLines;
  bool is_colored = false;
  std::function<void(std::string_view)> write;  // takes whole pieces of text; must not throw
  std::function<int()> columns = [] { return 80; };
  std::chrono::milliseconds first_line{2000};  // lines: of work that is still going on
  std::chrono::milliseconds next_line{10000};  // lines: from then on, so that a day's log can be read
  std::chrono::milliseconds redraw{100};       // bar
};

// As standard error allows.
ProgressStyle stderr_style(ColorChoice color);

// One piece of work after another: a new name, or a report after the last one was complete, begins the next.
// What is still open when the last copy of the function is gone is closed then.
Progress make_progress(ProgressStyle style);

// 7.5 s, 95 s, 12 min, 2.5 h.
std::string seconds_text(double seconds);

// 950, 12.3k, 153.6M: counts of samples or bytes in a few columns.
std::string short_count(int64_t count);

}  // namespace espalier::watch
