// espalier watch: a run, live, for browsers
#include <fmt/format.h>

#include <cstdio>

#include "espalier/cli/commands.h"
#include "espalier/core/error.h"
#include "espalier/watch/lines/reader.h"
#include "espalier/watch/serve/serve.h"

namespace espalier::cli {
namespace {

struct WatchOptions {
  std::string run;
  std::string host = "127.0.0.1";
  int64_t port = 8080;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "run", .help = "the run's directory", .placeholder = "RUN_DIR"}, run);
    v({.name = "port", .help = "where to listen; 0: any that is free", .low = 0, .high = 65535}, port);
    v({.name = "host",
       .help = "the address to listen on: anyone who can reach it may read; 0.0.0.0: all of this machine's",
       .placeholder = "ADDRESS"},
      host);
  }
};

int watch_run(const WatchOptions& options, Context&) {
  if (options.run.empty()) fail_usage("watch: want a run's directory, such as runs/latest");
  watch::check_is_run(options.run);
  watch::serve({.run = options.run, .host = options.host, .port = options.port}, [](const std::string& url) {
    fmt::print("{}  (Ctrl-C ends it)\n", url);
    std::fflush(stdout);
  });
  return 0;
}

}  // namespace

void add_watch_command(CLI::App& app, Context& context) {
  add_job<WatchOptions>(app, context,
                        {.name = "watch",
                         .summary = "show a run live in a browser",
                         .examples = "  espalier watch runs/latest\n  espalier watch runs/latest --port 0\n",
                         .positionals = {{"run", "RUN_DIR"}}},
                        watch_run);
}

}  // namespace espalier::cli
