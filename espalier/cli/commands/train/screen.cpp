#include "espalier/cli/commands/train/screen.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "espalier/core/machine/device_memory.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/run/earlier.h"
#include "espalier/watch/terminal/colours.h"
#include "espalier/watch/terminal/progress_bar.h"

namespace espalier::cli {
namespace {

constexpr size_t kMostSaid = 200;  // pieces of text that the normal screen gets; metrics.jsonl has all

// As torch's allocator counts it: another thread must not ask the driver while a graph is being captured.
std::function<std::optional<watch::MemoryUse>()> memory_of(const std::vector<c10::Device>& devices) {
  std::vector<c10::DeviceIndex> indices;
  int64_t total_bytes = 0;
  for (const c10::Device& device : devices) {
    if (!device.is_cuda()) continue;
    indices.push_back(device.index());
    if (const auto memory = cuda_memory(device.index())) total_bytes += memory->total_bytes;
  }
  if (indices.empty()) return {};
  return [indices, total_bytes]() -> std::optional<watch::MemoryUse> {
    watch::MemoryUse use{.total_bytes = total_bytes};
    for (const c10::DeviceIndex index : indices)
      use.used_bytes += c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(index).reserved_bytes[0].current;
    return use;
  };
}

}  // namespace

TrainScreen::TrainScreen(const Context& context, std::string job)
    : job_(std::move(job)),
      is_live_(context.tui && watch::is_interactive(STDOUT_FILENO)),
      color_(context.color),
      plain_(context.progress()) {}

TrainScreen::~TrainScreen() {
  try {
    if (!has_begun_ && pending_interrupt() != 0) say(kStoppedEarly);
    end();
  } catch (const std::exception&) {
    // Standard output is gone: an error that is under way says more.
  }
}

Progress TrainScreen::progress() {
  return [this](std::string_view what, int64_t done, int64_t total) {
    throw_if_interrupted();
    if (screen_) return screen_->report(what, done, total);
    if (plain_) plain_(what, done, total);
  };
}

run::RunEvents TrainScreen::run_events() {
  run::RunEvents events;
  if (is_live_)
    events.line_written = [this](const nlohmann::ordered_json& line) {
      if (screen_) screen_->add(line);
    };
  events.resumed = [this](const std::string& checkpoint) {
    say(fmt::format("goes on from checkpoint {}\n", checkpoint));
  };
  events.checkpoint_saved = [this](const run::SavedCheckpoint& saved) {
    say(fmt::format("checkpoint {}: {}, training held up for {:.1f} ms, written in {:.2f} s\n", saved.name,
                    format_byte_size(saved.bytes), saved.stall_ms, saved.write_seconds));
  };
  events.warned = [this](const std::string& text) { warn(text); };
  events.noted = [this](const std::string& text) { say(text + "\n"); };
  events.stopped = [this](const std::filesystem::path& run) {
    say(fmt::format("stopped; to go on: {}\n", run::resume_command(job_, run)));
  };
  return events;
}

void TrainScreen::begin(const std::filesystem::path& run, const watch::RunExtent& extent,
                        const std::vector<c10::Device>& devices) {
  has_begun_ = true;
  std::fflush(stdout);
  if (!is_live_) return;
  run_ = run;
  plain_ = {};  // ends its bar
  screen_.emplace(watch::LiveViewOptions{
      .job = job_,
      .run = run.filename().string(),
      .extent = extent,
      .style = {.glyphs = watch::locale_is_utf8() ? watch::Glyphs::kUtf8 : watch::Glyphs::kAscii,
                .is_colored = watch::uses_color(color_, STDOUT_FILENO)},
      .device_memory = memory_of(devices)});
}

void TrainScreen::say(std::string_view text) {
  if (!screen_) {
    fmt::print("{}", text);
    std::fflush(stdout);
    return;
  }
  screen_->say(text);
  said_.emplace_back(text);
  if (said_.size() <= kMostSaid) return;
  said_.pop_front();
  ++num_forgotten_;
}

void TrainScreen::warn(const std::string& text) {
  if (screen_) return say(fmt::format("warning: {}\n", text));
  print_warning(text, color_);
}

void TrainScreen::end() {
  if (!screen_) return;
  screen_.reset();
  if (num_forgotten_ > 0) fmt::print("(what came before is in {})\n", (run_ / "metrics.jsonl").string());
  for (const std::string& text : std::exchange(said_, {})) fmt::print("{}", text);
  std::fflush(stdout);
}

}  // namespace espalier::cli
