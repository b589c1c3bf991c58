#include "espalier/jobs/saved/networks.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "espalier/core/error.h"
#include "espalier/core/seed_state_json.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/core/text/utf8.h"
#include "espalier/jobs/facts/network.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "espalier/run/files/packed_metrics.h"
#include "espalier/run/location.h"
#include "espalier/tensor/file.h"

namespace espalier::jobs {
namespace {

namespace fs = std::filesystem;
using grow::GrownNetwork;
using Json = nlohmann::ordered_json;

constexpr const char* kEnvironment = "environment.json";
constexpr std::string_view kTensorFile = ".safetensors";

Json read_json(const fs::path& path) {
  std::ifstream file(path);
  return Json::parse(file, nullptr, /*allow_exceptions=*/false);
}

std::vector<std::string> names_field(const Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  std::vector<std::string> names;
  if (found != json.end() && found->is_array())
    for (const Json& name : *found)
      if (name.is_string()) names.push_back(name.get<std::string>());
  if (found == json.end() || names.size() != found->size())
    fail("{}: '{}': want a list of names; it is damaged", where, key);
  return names;
}

// What environment.json tells of a run's networks.
struct RunFacts {
  grow::NetworkDescription network;
  std::vector<std::string> slots;
  std::vector<std::string> blueprints;
};

RunFacts facts_of(const fs::path& run) {
  const Json json = read_json(run / kEnvironment);
  const std::string where = fmt::format("'{}'", (run / kEnvironment).string());
  const std::string job = text_field(json, "job", "", where);
  if (job != "population" && job != "host")
    fail_usage(
        "'{}' is a run of {}, which keeps no networks: want one of train population or train host, or a file "
        "that `espalier export` wrote",
        run.string(),
        job == "evaluate" ? "evaluate"
        : job.empty()     ? "another program"
                          : "train " + job);
  if (!json.contains(kNetworkFact))
    fail(
        "'{}' is the run of an older program, which did not write down mean, deviation and architecture; "
        "resume it "
        "once with this one: espalier train {} --resume {}",
        run.string(), job, run.string());
  RunFacts facts{.network = grow::network_from_json(json[kNetworkFact], where),
                 .slots = names_field(json, kSlotsFact, where),
                 .blueprints = names_field(json, kBlueprintsFact, where)};
  facts.network.origin.run = run.string();
  return facts;
}

// Calls it with every line of metrics.jsonl, packed or not.
void each_line(const fs::path& run, const std::function<void(const std::string&)>& line) {
  if (!run::is_packed(run)) {
    std::ifstream metrics(run / run::kMetrics);
    for (std::string text; std::getline(metrics, text);) line(text);
    return;
  }
  constexpr size_t kLongest = 64 << 20;  // what is longer is none of ours, and would fill memory
  std::string text;
  run::read_packed(run, [&](std::string_view piece) {
    for (size_t end = piece.find('\n'); end != piece.npos; end = piece.find('\n')) {
      if (text.size() < kLongest) line(text.append(piece.substr(0, end)));
      text.clear();
      piece.remove_prefix(end + 1);
    }
    if (text.size() < kLongest) text += piece;
  });
}

// Results of the last state, by lane: what the end of the metrics says.
std::map<int64_t, double> test_accuracies(const fs::path& run, bool has_one_lane) {
  std::map<int64_t, double> accuracies;
  each_line(run, [&](const std::string& line) {
    if (line.find("test_accuracy") == line.npos) return;  // most of them: not worth parsing
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("test_accuracy") || !json["test_accuracy"].is_number()) return;
    const Json kind = json.value("kind", Json());
    const double accuracy = json["test_accuracy"].get<double>();
    if (kind == "lane_result" && json.contains("lane"))
      accuracies[whole_number<int64_t>(json["lane"]).value_or(-1)] = accuracy;
    else if (kind == "result" && has_one_lane)
      accuracies[0] = accuracy;
  });
  return accuracies;
}

// A checkpoint as train/population/shard.cpp and trainer.cpp name what is in it.
class NetworkReader {
 public:
  NetworkReader(const fs::path& path, RunFacts facts)
      : checkpoint_(run::read_checkpoint(path)),
        facts_(std::move(facts)),
        where_(fmt::format("checkpoint '{}'", path.string())) {
    state_ = object_field(checkpoint_.manifest, "state", where_);
    while (state_.contains(fmt::format("population{}.applied_states", num_shards_))) num_shards_ += 1;
  }

  std::vector<GrownNetwork> read() const {
    std::vector<GrownNetwork> networks;
    const int64_t shards = std::max<int64_t>(num_shards_, 1);
    for (int64_t shard = 0; shard < shards; ++shard) {
      const std::string prefix = num_shards_ == 0 ? "" : fmt::format("population{}.", shard);
      const std::vector<SlotState> states = states_in(prefix);
      const int64_t lanes = std::ssize(states) / std::ssize(facts_.slots);
      for (int64_t lane = 0; lane < lanes; ++lane) {
        networks.push_back(described(prefix, lane, states));
        networks.back().description.origin.lane = lane * shards + shard;
        add_tensors(prefix, lane, networks.back());
      }
    }
    std::ranges::sort(networks, {},
                      [](const GrownNetwork& network) { return network.description.origin.lane; });
    return networks;
  }

 private:
  std::vector<SlotState> states_in(const std::string& prefix) const {
    const auto found = state_.find(prefix + "applied_states");
    std::vector<SlotState> states;
    try {
      if (found != state_.end()) found->get_to(states);
    } catch (const nlohmann::json::exception&) {
      states.clear();
    } catch (const std::invalid_argument&) {
      states.clear();
    }
    const auto slots = facts_.slots.size();
    if (states.empty() || slots == 0 || states.size() % slots != 0)
      fail("{}: 'applied_states': want the states of {} slots in every lane; it is damaged", where_, slots);
    for (const SlotState& state : states) {
      if (const auto fault = fault_in(state)) fail("{}: the state of a slot is damaged: {}", where_, *fault);
      if (holds_seed(state.stage) && state.blueprint >= std::ssize(facts_.blueprints))
        fail("{}: blueprint {} is none of the run's {}", where_, state.blueprint, facts_.blueprints.size());
    }
    return states;
  }

  GrownNetwork described(const std::string& prefix, int64_t lane,
                         const std::vector<SlotState>& states) const {
    GrownNetwork network{.description = facts_.network};
    grow::NetworkDescription& to = network.description;
    for (size_t slot = 0; slot < facts_.slots.size(); ++slot) {
      SlotState state = states[static_cast<size_t>(lane) * facts_.slots.size() + slot];
      if (!holds_seed(state.stage)) continue;
      const std::string& blueprint = facts_.blueprints[static_cast<size_t>(state.blueprint)];
      state.blueprint = 0;
      to.seeds.push_back({facts_.slots[slot], blueprint, state});
    }
    to.origin.epoch = integer_field(state_, (prefix + "epoch").c_str(), 0, where_);
    const auto accuracies = state_.find(fmt::format("{}lane{}.accuracies", prefix, lane));
    if (accuracies != state_.end() && accuracies->is_array() && !accuracies->empty() &&
        accuracies->back().is_number())
      to.origin.validation_accuracy = accuracies->back().get<double>();
    return network;
  }

  void add_tensors(const std::string& prefix, int64_t lane, GrownNetwork& network) const {
    const std::string host = prefix + "host.", own = fmt::format("{}lane{}.", prefix, lane);
    for (const TensorEntry& entry : checkpoint_.header.tensors) {
      if (entry.name.starts_with(host)) {
        if (entry.shape.empty() || lane >= entry.shape.front())
          fail("{}: tensor {}: want one of every lane; it is damaged", where_, in_quotes(entry.name));
        network.tensors[entry.name.substr(host.size())] = slice_of(entry, lane);
      } else if (entry.name.starts_with(own)) {
        const std::string value = entry.name.substr(own.size());
        const auto is_its = [&](const grow::SeedDescription& seed) {
          return value.starts_with(seed.slot + "." + seed.blueprint + ".");
        };
        const auto seed = std::ranges::find_if(network.description.seeds, is_its);
        if (seed == network.description.seeds.end()) continue;  // an optimiser's
        const std::string name = grow::exported_name(value, &*seed);
        const bool is_gate = name.starts_with(seed->slot + ".gate.");
        if (is_gate && seed->state.blend_operator != BlendOperator::kGate) continue;
        network.tensors[name] = whole(entry);
      }
    }
  }

  at::Tensor whole(const TensorEntry& entry) const {
    const at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(torch_type(entry)));
    std::memcpy(tensor.mutable_data_ptr(), checkpoint_.bytes_of(entry).data(),
                static_cast<size_t>(entry.length_bytes));
    return tensor.to(at::kFloat);
  }

  at::Tensor slice_of(const TensorEntry& entry, int64_t lane) const {
    const std::vector<int64_t> shape(entry.shape.begin() + 1, entry.shape.end());
    const at::Tensor tensor = at::empty(shape, at::TensorOptions(torch_type(entry)));
    const auto bytes = static_cast<size_t>(entry.length_bytes / entry.shape.front());
    std::memcpy(tensor.mutable_data_ptr(),
                checkpoint_.bytes_of(entry).data() + static_cast<size_t>(lane) * bytes, bytes);
    return tensor.to(at::kFloat);
  }

  run::Checkpoint checkpoint_;
  RunFacts facts_;
  std::string where_;
  Json state_;
  int64_t num_shards_ = 0;  // 0: there is one, whose names have no prefix
};

std::vector<GrownNetwork> networks_of_run(const fs::path& run, const std::string& name, bool is_newest) {
  std::vector<GrownNetwork> networks = NetworkReader(run / run::kCheckpoints / name, facts_of(run)).read();
  if (is_newest) {
    const std::map<int64_t, double> tested = test_accuracies(run, networks.size() == 1);
    for (GrownNetwork& network : networks)
      if (const auto found = tested.find(network.description.origin.lane); found != tested.end())
        network.description.origin.test_accuracy = found->second;
  }
  return networks;
}

std::vector<GrownNetwork> networks_in_folder(const fs::path& folder, const std::string& from) {
  std::vector<std::string> files;
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, code))
    if (entry.path().extension() == kTensorFile) files.push_back(entry.path().string());
  if (files.empty())
    fail_usage(
        "'{}': is neither a run nor an exported network: want the directory of a run of train population or "
        "train host, latest, or files that `espalier export` wrote",
        from);
  std::ranges::sort(files);
  std::vector<GrownNetwork> networks;
  for (const std::string& file : files) {
    networks.push_back(grow::read_network(file));
    networks.back().name = fs::path(file).stem().string();
  }
  std::ranges::stable_sort(networks, {},
                           [](const GrownNetwork& network) { return network.description.origin.lane; });
  return networks;
}

double score_of(const GrownNetwork& network) {
  return network.description.origin.validation_accuracy.value_or(-1);
}

bool has_validation(const GrownNetwork& network) {
  return network.description.origin.validation_accuracy.has_value();
}

// option: what asks for the best so many, as it was given; remedy: what to give where there is no best.
std::vector<GrownNetwork> best_of(std::vector<GrownNetwork> networks, int64_t count,
                                  const std::string& option, const std::string& remedy) {
  if (count < std::ssize(networks) && std::ranges::none_of(networks, has_validation))
    fail_usage("{}: none was validated; give {}", option, remedy);
  std::ranges::stable_sort(networks, std::ranges::greater(), score_of);
  networks.resize(static_cast<size_t>(count));
  return networks;
}

}  // namespace

std::vector<GrownNetwork> saved_networks(const std::string& from, CheckpointChoice choice) {
  std::error_code code;
  const fs::path path = fs::canonical(from == "latest" ? fs::path("runs") / "latest" : fs::path(from), code);
  if (code)
    fail_usage("'{}': is not there; want a run of train population or train host, or an exported file", from);
  if (fs::is_regular_file(path)) return {grow::read_network(path.string())};
  const bool is_checkpoint = fs::exists(path / run::kManifestFile);
  const fs::path run = is_checkpoint ? run::run_around(path) : path;
  if (is_checkpoint && run.empty())
    fail_usage("'{}': is a checkpoint outside its run: put it back into the folder '{}' of the run", from,
               run::kCheckpoints);
  if (!fs::exists(run / kEnvironment)) return networks_in_folder(path, from);
  const run::CheckpointFolder checkpoints(run / run::kCheckpoints);
  const std::vector<std::string> names = checkpoints.names();
  if (is_checkpoint) return networks_of_run(run, path.filename().string(), path.filename() == names.back());
  facts_of(run);  // what is no population says so first
  if (names.empty())
    fail("'{}': has no checkpoint yet; wait for the first, or let the run end", run.string());
  const std::string name =
      choice == CheckpointChoice::kBest ? checkpoints.best().value_or(names.back()) : names.back();
  return networks_of_run(run, name, name == names.back());
}

std::vector<GrownNetwork> best_networks(std::vector<GrownNetwork> networks, int64_t count) {
  if (count > std::ssize(networks))
    fail_usage("--ensemble {}: there {} {} network{}; want at most so many", count,
               networks.size() == 1 ? "is" : "are", networks.size(), networks.size() == 1 ? "" : "s");
  const std::string remedy = fmt::format("--ensemble {}, or --lane and a number", networks.size());
  return best_of(std::move(networks), count, fmt::format("--ensemble {}", count), remedy);
}

std::vector<GrownNetwork> chosen_networks(std::vector<GrownNetwork> networks, const LaneChoice& choice) {
  if (choice.which == LaneChoice::Which::kAll) return networks;
  if (choice.which == LaneChoice::Which::kBest)
    return best_of(std::move(networks), 1, "--lane best", "a number");
  const auto is_chosen = [&](const GrownNetwork& network) {
    return network.description.origin.lane == choice.lane;
  };
  const auto found = std::ranges::find_if(networks, is_chosen);
  if (const auto same = std::ranges::count_if(networks, is_chosen); same > 1)
    fail_usage("--lane {}: {} networks of this folder are lane {}: name a file", choice.lane, same,
               choice.lane);
  if (found != networks.end()) return {std::move(*found)};
  fail_usage("--lane {}: there is no such lane: want {} to {}, best or all", choice.lane,
             networks.front().description.origin.lane, networks.back().description.origin.lane);
}

}  // namespace espalier::jobs
