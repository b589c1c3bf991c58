#include "espalier/watch/terminal/progress_bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

namespace espalier::watch {
namespace {

using std::chrono::milliseconds;

// Keeps what was written; the printer's own thread writes too.
class Sink {
 public:
  ProgressStyle style(ProgressShape shape, int columns = 80) {
    ProgressStyle style;
    style.shape = shape;
    style.write = [this](std::string_view text) {
      const std::lock_guard lock(mutex_);
      text_ += text;
    };
    style.columns = [columns] { return columns; };
    style.first_line = milliseconds(20);
    style.next_line = milliseconds(40);
    style.redraw = milliseconds(0);
    return style;
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }
  // Waits for the clock of the printer, which may be late on a busy machine.
  bool comes_to_hold(std::string_view part) const {
    for (int i = 0; i < 500; ++i) {
      if (text().find(part) != std::string::npos) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

// The longest stretch that a terminal would show on one line.
size_t widest_line(const std::string& text) {
  size_t widest = 0;
  size_t current = 0;
  for (const char c : text) {
    current = c == '\r' || c == '\n' ? 0 : current + 1;
    widest = std::max(widest, current);
  }
  return widest;
}

TEST(ProgressLines, SayOnceThatShortWorkIsDone) {
  Sink sink;
  {
    ProgressStyle style = sink.style(ProgressShape::kLines);
    style.first_line = std::chrono::hours(1);
    const Progress progress = make_progress(style);
    for (int i = 0; i <= 10; ++i) progress("reading", i, 10);
    progress("reading", 10, 10);
  }
  EXPECT_EQ(sink.text(), "reading: 10 in 0.0 s\n");
}

TEST(ProgressLines, NeverHoldACarriageReturnOrAnEscape) {
  Sink sink;
  {
    const Progress progress = make_progress(sink.style(ProgressShape::kLines));
    progress("a\r\033[2Jb", 1, 10);
    EXPECT_TRUE(sink.comes_to_hold("a??[2Jb: 1 of 10 (10 %)"));
    progress("a\r\033[2Jb", 10, 10);
  }
  EXPECT_EQ(sink.text().find_first_of("\r\033"), std::string::npos);
}

TEST(ProgressLines, SpeakAgainAndAgainForWorkThatReportsNothing) {
  Sink sink;
  const Progress progress = make_progress(sink.style(ProgressShape::kLines));
  std::this_thread::sleep_for(milliseconds(100));  // until the printer's thread waits for work
  progress("slow", 3, 0);
  EXPECT_TRUE(sink.comes_to_hold("slow: 3, 0.0 s\n"));
  const size_t length = sink.text().size();
  for (int i = 0; i < 500 && sink.text().size() == length; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_GT(sink.text().size(), length);
}

TEST(ProgressLines, SpeakForTheSameWorkDoneTwice) {
  Sink sink;
  const Progress progress = make_progress(sink.style(ProgressShape::kLines));
  progress("epoch", 2, 2);
  progress("epoch", 1, 2);
  EXPECT_TRUE(sink.comes_to_hold("epoch: 1 of 2 (50 %)"));
}

TEST(ProgressLines, ClaimNoSuccessForBrokenWork) {
  Sink sink;
  try {
    const Progress progress = make_progress(sink.style(ProgressShape::kLines));
    progress("reading", 0, 0);
    throw std::runtime_error("broken");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(sink.text().find(" in "), std::string::npos);
}

TEST(ProgressBar, FillsAndEndsTheLine) {
  Sink sink;
  {
    const Progress progress = make_progress(sink.style(ProgressShape::kBar));
    for (int i = 0; i <= 4; ++i) progress("reading", i, 4);
  }
  const std::string text = sink.text();
  EXPECT_NE(text.find("\rreading [" + std::string(20, '=') + std::string(20, ' ') + "]  50 %"),
            std::string::npos);
  EXPECT_NE(text.find("\rreading [" + std::string(40, '=') + "] 100 %"), std::string::npos);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text.find('\033'), std::string::npos) << "no escape sequence without colour";
}

TEST(ProgressBar, StaysWithinTheTerminalWhateverItsWidth) {
  for (const int columns : {20, 21, 37, 60, 80, 200}) {
    Sink sink;
    {
      const Progress progress = make_progress(sink.style(ProgressShape::kBar, columns));
      progress(std::string(300, 'x'), 1, 1000000);
      progress("short", 999999999, 1000000000000);
      progress("unknown total", 12345678, 0);
    }
    EXPECT_LT(widest_line(sink.text()), static_cast<size_t>(columns)) << columns;
  }
}

TEST(ProgressBar, LeavesTheLineWhenWorkBreaks) {
  Sink sink;
  try {
    const Progress progress = make_progress(sink.style(ProgressShape::kBar));
    progress("reading", 1, 4);
    throw std::runtime_error("broken");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(sink.text().back(), '\n');
}

TEST(ProgressBar, WritesOverALongerLine) {
  Sink sink;
  {
    const Progress progress = make_progress(sink.style(ProgressShape::kBar));
    progress("counting", 1000000000, 0);
    progress("counting", 1, 0);
  }
  const std::string text = sink.text();
  const size_t second = text.find('\r', 1);
  ASSERT_NE(second, std::string::npos);
  const size_t third = text.find_first_of("\r\n", second + 1);
  EXPECT_GE(third - second, second) << "spaces cover the rest";
}

TEST(ProgressBar, ColoursOnlyWhenAsked) {
  Sink sink;
  {
    ProgressStyle style = sink.style(ProgressShape::kBar);
    style.is_colored = true;
    make_progress(style)("reading", 2, 4);
  }
  EXPECT_NE(sink.text().find("\033[32m====="), std::string::npos);
}

TEST(Progress, CountsInAFewColumns) {
  EXPECT_EQ(short_count(0), "0");
  EXPECT_EQ(short_count(99999), "99999");
  EXPECT_EQ(short_count(100000), "100.0k");
  EXPECT_EQ(short_count(999960), "1.0M");
  EXPECT_EQ(short_count(153600000), "153.6M");
}

}  // namespace
}  // namespace espalier::watch
