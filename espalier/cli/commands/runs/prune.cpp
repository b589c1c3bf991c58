// espalier runs prune, espalier runs pack: make room in a folder of runs
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/runs/folder.h"
#include "espalier/cli/commands/runs/summary.h"
#include "espalier/core/error.h"
#include "espalier/core/files/lock.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/run/files/packed_metrics.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

namespace fs = std::filesystem;

enum class Pruned : uint8_t { kRuns, kCheckpoints };
enum class Which : uint8_t { kAll, kStopped, kFinished };

struct PruneOptions {
  std::string dir = "runs";
  Pruned what = Pruned::kRuns;
  Which state = Which::kAll;
  int64_t keep = 10;
  int64_t days = 0;
  bool yes = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "dir", .help = "the folder that holds the runs", .placeholder = "DIR"}, dir);
    v({.name = "keep", .help = "how many of the newest runs are left alone", .low = 0, .high = 1e6}, keep);
    v({.name = "days",
       .help = "runs that were written to in the last so many days are left alone too; 0: none",
       .low = 0,
       .high = 36500},  // a century: its nanoseconds still fit
      days);
    v({.name = "state", .help = "which of the others: all, stopped or finished ones"},
      one_of(state, {{"all", Which::kAll}, {"stopped", Which::kStopped}, {"finished", Which::kFinished}}));
    v({.name = "what",
       .help = "runs: their whole directories; checkpoints: only the checkpoints of finished ones, whose "
               "results and page stay"},
      one_of(what, {{"runs", Pruned::kRuns}, {"checkpoints", Pruned::kCheckpoints}}));
    v({.name = "yes", .help = "do it; without: only say what would be removed"}, yes);
  }
};

// When anything directly in it was written.
fs::file_time_type last_written(const fs::path& run) {
  fs::file_time_type newest = fs::file_time_type::min();
  std::error_code code;
  for (fs::directory_iterator at(run, code), end; !code && at != end; at.increment(code)) {
    std::error_code ignored;
    const auto time = at->last_write_time(ignored);
    if (!ignored) newest = std::max(newest, time);
  }
  return newest;
}

bool is_meant(const FoundRun& run, const PruneOptions& options) {
  const watch::RunState state = run.record.state;
  if (state == watch::RunState::kRunning) return false;
  if (options.state == Which::kStopped && state != watch::RunState::kStopped) return false;
  if (options.state == Which::kFinished && state != watch::RunState::kFinished) return false;
  if (options.what == Pruned::kCheckpoints && state != watch::RunState::kFinished) return false;
  if (options.days == 0) return true;
  return last_written(run.path) < fs::file_time_type::clock::now() - std::chrono::days(options.days);
}

// What a directory's lock says of a process that works there: taken for as long as the directory is changed.
// None where a process holds it.
std::unique_ptr<LockFile> lock_of(const fs::path& run) {
  try {
    return std::make_unique<LockFile>((run / "lock").string(), fmt::format("run '{}'", run.string()));
  } catch (const Error&) {
    return nullptr;
  }
}

// `latest` must not point to nothing.
void repair_latest(const fs::path& folder, const std::vector<FoundRun>& left) {
  const fs::path link = folder / "latest";
  std::error_code code;
  if (!fs::is_symlink(link, code) || fs::exists(link, code)) return;
  fs::remove(link, code);
  if (!left.empty()) fs::create_directory_symlink(left.front().path.filename(), link, code);
}

int prune(const PruneOptions& options, Context& context) {
  std::vector<FoundRun> runs = runs_in(options.dir);
  const auto kept = std::min(runs.size(), static_cast<size_t>(options.keep));
  std::vector<FoundRun> left(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(kept));
  watch::Table table({"run", "job", "state", ">size", ">freed"});
  int64_t freed_bytes = 0, count = 0;
  for (size_t i = kept; i < runs.size(); ++i) {
    const FoundRun& run = runs[i];
    const fs::path removed = options.what == Pruned::kRuns ? run.path : run.path / run::kCheckpoints;
    std::error_code code;
    const bool is_there = fs::is_directory(removed, code);
    const std::unique_ptr<LockFile> lock =
        is_meant(run, options) && is_there && options.yes ? lock_of(run.path) : nullptr;
    if (!is_meant(run, options) || !is_there || (options.yes && !lock)) {
      left.push_back(run);
      continue;
    }
    const int64_t bytes = tree_bytes(removed);
    if (options.yes) {
      fs::remove_all(removed, code);
      if (code) {
        print_warning(fmt::format("'{}': cannot be removed: {}", removed.string(), code.message()),
                      context.color);
        continue;
      }
    }
    if (options.what == Pruned::kCheckpoints) left.push_back(run);
    freed_bytes += bytes;
    ++count;
    table.add_row({run.record.name, run.record.job, watch::name_of(run.record.state),
                   format_byte_size(run.bytes), format_byte_size(bytes)});
  }
  if (options.yes && options.what == Pruned::kRuns) repair_latest(options.dir, left);
  if (count == 0) {
    fmt::print("nothing to remove in {}: {} runs, and the newest {} are kept\n", options.dir, runs.size(),
               options.keep);
    return 0;
  }
  fmt::print("{}{} {} of {} {}; {}\n", table.text(), options.yes ? "removed" : "would remove",
             format_byte_size(freed_bytes), count, count == 1 ? "run" : "runs",
             options.yes ? fmt::format("{} are left", left.size())
                         : std::string("nothing was changed: --yes does it"));
  return 0;
}

struct PackOptions {
  std::string dir = "runs";

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "dir", .help = "the folder that holds the runs", .placeholder = "DIR"}, dir);
  }
};

int pack(const PackOptions& options, Context& context) {
  int64_t saved_bytes = 0, count = 0;
  for (const FoundRun& run : runs_in(options.dir)) {
    if (run.record.state != watch::RunState::kFinished || run::is_packed(run.path)) continue;
    const std::unique_ptr<LockFile> lock = lock_of(run.path);
    if (!lock) continue;
    try {
      saved_bytes += run::pack_metrics(run.path);
      ++count;
    } catch (const Error& error) {
      print_warning(error.what(), context.color);
    }
  }
  fmt::print("packed the metrics of {} finished {} in {}: {} freed\n", count, count == 1 ? "run" : "runs",
             options.dir, format_byte_size(std::max<int64_t>(saved_bytes, 0)));
  return 0;
}

}  // namespace

void add_runs_prune(CLI::App& runs, Context& context) {
  add_job<PruneOptions>(
      runs, context,
      {.name = "prune",
       .summary = "remove old runs, or their checkpoints; says what, and does it with --yes",
       .examples = "  espalier runs prune --keep 5\n"
                   "  espalier runs prune --state stopped --days 7 --yes\n"
                   "  espalier runs prune --what checkpoints --keep 0 --yes\n"
                   "A run that a process works in is never touched, nor anything that is no run.\n",
       .positionals = {{"dir", "DIR"}}},
      prune);
}

void add_runs_pack(CLI::App& runs, Context& context) {
  add_job<PackOptions>(runs, context,
                       {.name = "pack",
                        .summary = "compress metrics.jsonl of finished runs; every command reads both forms",
                        .examples = "  espalier runs pack\n  gunzip -k runs/latest/metrics.jsonl.gz\n",
                        .positionals = {{"dir", "DIR"}}},
                       pack);
}

}  // namespace espalier::cli
