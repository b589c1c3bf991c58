#include "espalier/cli/run_messages.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "espalier/core/byte_size.h"
#include "espalier/watch/terminal.h"

namespace espalier::cli {

train::RunEvents run_events(const Context& context) {
  train::RunEvents events;
  events.resumed = [](const std::string& checkpoint) {
    fmt::print("goes on from checkpoint {}\n", checkpoint);
  };
  events.checkpoint_saved = [](const train::SavedCheckpoint& saved) {
    fmt::print("checkpoint {}: {}, training held up for {:.1f} ms, written in {:.2f} s\n", saved.name,
               format_byte_size(saved.bytes), saved.stall_ms, saved.write_seconds);
  };
  events.warned = [color = context.color](const std::string& text) {
    const bool is_colored = watch::uses_color(color, STDERR_FILENO);
    fmt::print(stderr, "espalier: {} {}\n", watch::painted("warning:", watch::Color::kYellow, is_colored),
               text);
  };
  events.stopped = [](const std::filesystem::path& run) {
    fmt::print("stopped; to go on: the same command with --resume {}\n", run.string());
    std::fflush(stdout);
  };
  return events;
}

}  // namespace espalier::cli
