// espalier inspect: what a checkpoint holds
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>

#include "espalier/cli/commands.h"
#include "espalier/core/error.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string checkpoint;
  bool tensors = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "checkpoint",
       .help = "a checkpoint, or a run: its newest one; latest: of the newest run",
       .placeholder = "PATH"},
      checkpoint);
    v({.name = "tensors", .help = "list every tensor"}, tensors);
  }
};

fs::path chosen_checkpoint(const std::string& given) {
  if (given.empty()) fail_usage("inspect: want a checkpoint or a run: espalier inspect runs/latest");
  const fs::path path = given == "latest" ? fs::path("runs") / given : fs::path(given);
  if (fs::exists(path / run::kManifestFile)) return path;
  const run::CheckpointFolder folder(path / run::kCheckpoints);
  const std::vector<std::string> names = folder.names();
  if (names.empty()) fail("'{}': is no checkpoint, and no run that has one", path.string());
  return folder.path() / names.back();
}

std::string plain(const Json& value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The seeds of all lanes: "lane 2: r0c1 TRAINING, r1c0 HOLDING".
void print_seeds(const Json& state) {
  for (const auto& item : state.items()) {
    const std::string& key = item.key();
    if (key != "states" && !key.ends_with(".states")) continue;
    if (key.find("good.") != key.npos || !item.value().is_array()) continue;  // the last good states
    std::map<std::string, int> stages;
    for (const Json& slot : item.value())
      if (slot.is_object()) stages[slot.contains("stage") ? plain(slot["stage"]) : "?"] += 1;
    fmt::print("{}slots by stage:", key == "states" ? "" : key.substr(0, key.find('.')) + ", ");
    for (const auto& [stage, count] : stages) fmt::print(" {} {}", stage, count);
    fmt::print("\n");
  }
}

std::string why_without_score(const Json& job) {
  return job == "evaluate" ? "none: a comparison has no score"
                           : "none: it was taken within an epoch, or after one that was not validated";
}

int inspect(const InspectOptions& options, Context&) {
  const fs::path path = fs::canonical(chosen_checkpoint(options.checkpoint));
  const run::Checkpoint checkpoint = run::read_checkpoint(path);
  const Json& manifest = checkpoint.manifest;
  int64_t bytes = 0;
  for (const TensorEntry& entry : checkpoint.header.tensors) bytes += entry.length_bytes;
  fmt::print("{}: whole, all checksums right\n", path.string());
  for (const char* key : {"job", "version", "saved", "batches"})
    if (manifest.contains(key)) fmt::print("{}: {}\n", key, plain(manifest[key]));
  const Json score = manifest.value("score", Json());
  fmt::print("score: {}\n",
             score.is_null() ? why_without_score(manifest.value("job", Json())) : plain(score));
  const run::CheckpointFolder folder(path.parent_path());
  if (const auto best = folder.best())
    fmt::print("best: {}\n", *best == path.filename()
                                 ? "this one"
                                 : fmt::format("{}, score {}", *best, plain(*folder.score_of(*best))));
  const std::string where = fmt::format("checkpoint '{}'", path.string());
  const Json state = object_field(manifest, "state", where);
  for (const auto& [key, name] :
       {std::pair{"epoch", "epoch"}, std::pair{"batches_done", "batches_done"},
        std::pair{"step.batches_done", "batches_done"}, std::pair{"rounds_done", "rounds_done"},
        std::pair{"is_under_way", "is_under_way"}})
    if (state.contains(key)) fmt::print("{}: {}\n", name, plain(state[key]));
  print_seeds(state);
  fmt::print("{} tensors, {}\n", checkpoint.header.tensors.size(), format_byte_size(bytes));
  if (options.tensors) {
    watch::Table table({"tensor", "type", "shape"});
    for (const TensorEntry& entry : checkpoint.header.tensors)
      table.add_row({entry.name, name_of(entry.type), Json(entry.shape).dump()});
    fmt::print("{}", table.text(2));
  }
  const Json fingerprint = object_field(manifest, "fingerprint", where);
  if (fingerprint.contains("threads")) fmt::print("threads: {}\n", plain(fingerprint["threads"]));
  fmt::print("configuration:\n");
  watch::Table config({"key", "value"});
  const Json configured = object_field(fingerprint, "config", where);
  for (const auto& item : configured.items()) config.add_row({item.key(), plain(item.value())});
  fmt::print("{}", config.text(2));
  return 0;
}

}  // namespace

void add_inspect_command(CLI::App& app, Context& context) {
  add_job<InspectOptions>(app, context,
                          {.name = "inspect",
                           .summary = "what a checkpoint holds, and whether it is whole",
                           .examples = "  espalier inspect runs/latest\n"
                                       "  espalier inspect runs/latest --tensors\n",
                           .positionals = {{"checkpoint", "PATH"}}},
                          inspect);
}

}  // namespace espalier::cli
