#include "espalier/cli/commands/comparison_show.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <utility>

#include "espalier/core/machine/interrupt.h"
#include "espalier/run/earlier.h"

namespace espalier::cli {

ComparisonShow::ComparisonShow(const Context& context, std::string early)
    : context_(context), early_(std::move(early)) {}

ComparisonShow::~ComparisonShow() {
  if (!is_prepared_ || has_begun_ || pending_interrupt() == 0 || !context_.world().leads()) return;
  std::fputs(early_.c_str(), stdout);
  std::fflush(stdout);
}

jobs::EvaluateEvents ComparisonShow::events() {
  jobs::EvaluateEvents events;
  events.progress = [this, show = context_.progress()](std::string_view what, int64_t done, int64_t total) {
    is_prepared_ = true;
    show(what, done, total);
  };
  events.batch_done = [this] { has_begun_ = true; };
  events.run.warned = [this](const std::string& text) { print_warning(text, context_.color); };
  events.run.noted = [](const std::string& text) { fmt::print("{}\n", text); };
  events.run.resumed = [this](const std::string& checkpoint) {
    has_begun_ = true;
    fmt::print("goes on from checkpoint {}\n", checkpoint);
  };
  events.run.stopped = [this](const std::filesystem::path& run) {
    has_begun_ = true;
    fmt::print("stopped; to go on: {}\n", run::resume_command("evaluate", run));
  };
  return events;
}

}  // namespace espalier::cli
