#include "espalier/jobs/evaluate.h"

#include <ATen/Parallel.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>

#include "espalier/core/byte_stream.h"
#include "espalier/core/error.h"
#include "espalier/core/files/crc32c.h"
#include "espalier/core/files/mapped.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/core/text/list.h"
#include "espalier/grow/export/python.h"
#include "espalier/jobs/export.h"
#include "espalier/jobs/facts/dataset.h"
#include "espalier/jobs/facts/network.h"
#include "espalier/jobs/facts/precision_name.h"
#include "espalier/jobs/ppo.h"
#include "espalier/jobs/saved/named_controller.h"
#include "espalier/jobs/scope.h"
#include "espalier/run/archive.h"
#include "espalier/run/directory.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "espalier/run/files/metric_keys.h"
#include "espalier/run/location.h"
#include "espalier/run/newest_checkpoint.h"
#include "espalier/tensor/device.h"
#include "espalier/train/control/recorder.h"
#include "espalier/train/population/episode_seed.h"
#include "espalier/train/population/setup.h"

namespace espalier::jobs {
namespace {

constexpr std::string_view kControllersFlag = "--controllers";
constexpr ControllerFlags kEvaluateFlags{.controller = kControllersFlag, .length = "--episode-length"};

void check_controllers(const EvaluateConfig& options) {
  train::refuse_own_controller(options, "controllers");
  bool has_policy = false;
  for (const std::string& name : options.controllers) {
    check_controller(name, kControllersFlag);
    has_policy = has_policy || policy_file_in(name, kControllersFlag);
    const auto recorded = recorded_in(name, kControllersFlag);
    if (recorded && recorded->file.empty() && !has_policy)
      fail_usage(
          "{} {}: follows the first policy before it, and there is none: put ppo:FILE before it, or give "
          "{}:FILE with a recording",
          kControllersFlag, name, name);
  }
}

// played: what the first policy did; before it has played, static and replay cannot be made.
std::unique_ptr<train::Controller> controller_named(const std::string& name, const EvaluateConfig& options,
                                                    const grow::NetworkStack& population,
                                                    const train::Recording* played) {
  return NamedController(name, kEvaluateFlags)
      .make(options, population,
            options.greedy ? policy::ActingMode::kLikeliest : policy::ActingMode::kSampling, played);
}

void check_keep(const EvaluateConfig& options) {
  namespace fs = std::filesystem;
  const std::string& keep = options.keep;
  if (keep.empty() && options.keep_lanes == KeptLanes::kAll)
    fail_usage("--keep-lanes all: no network is kept without --keep; give a folder with it");
  if (!keep.empty() && fs::exists(fs::symlink_status(keep)) &&
      (!fs::is_directory(keep) || !fs::is_empty(keep)))
    fail_usage("--keep {}: exists and is no empty folder; give another name", keep);
}

// Before anything is played: whatever --keep will keep can be written.
void check_exportable(const EvaluateConfig& options, const train::ShardSetup& shard) {
  if (options.keep.empty()) return;
  const bool grows = needs_of(options, train::space_of(shard)).growth.has_value();
  const grow::NetworkDescription bare = described_network(options.population, *shard.dataset, "");
  const auto planted = grows ? shard.blueprints.names() : std::vector<std::string>();
  if (const auto fault = grow::fault_in_python(bare, planted, shard.blueprints))
    fail_usage("--keep {}: {}; leave --keep out", options.keep, *fault);
}

// What a rank sends of a network: its seeds and tensors; rank 0 knows the rest.
template <class Stream>
void visit_network(Stream& stream, grow::GrownNetwork& network) {
  stream.each(network.description.seeds, [&](grow::SeedDescription& seed) {
    stream.text(seed.slot);
    stream.text(seed.blueprint);
    stream.plain(seed.state);
  });
  std::vector<std::pair<std::string, at::Tensor>> tensors(network.tensors.begin(), network.tensors.end());
  stream.each(tensors, [&](std::pair<std::string, at::Tensor>& named) {
    auto& [name, tensor] = named;
    std::vector<int64_t> sizes;
    std::vector<float> values;
    if constexpr (!Stream::kReads) {
      const at::Tensor dense = tensor.reshape({-1});
      sizes = tensor.sizes().vec();
      values.assign(dense.const_data_ptr<float>(), dense.const_data_ptr<float>() + dense.numel());
    }
    stream.text(name);
    stream.list(sizes);
    stream.list(values);
    if constexpr (Stream::kReads) {
      tensor = at::tensor(values, at::kFloat).view(sizes);
      network.tensors[name] = tensor;
    }
  });
}

// Keeps the best network of an episode, by validation, or all; lanes that were given up are left out, one
// that was rolled back stands at its last good state. Rank 0 has the folder, wherever the network is.
class Keeper {
 public:
  Keeper(const EvaluateConfig& options, train::PopulationTrainer& environments,
         const data::ResidentDataset& dataset)
      : folder_(options.keep), lanes_(options.keep_lanes), environments_(environments) {
    if (folder_.empty()) return;
    if (environments.world().leads()) run::make_folder(folder_);
    described_ = described_network(options.population, dataset, "espalier evaluate");
  }

  // controller: its place in the list, from 0.
  void keep(const std::string& name, size_t controller, int64_t episode, const train::EpochRecord& last,
            const std::vector<train::LaneScore>& tested) {
    if (folder_.empty()) return;
    for (const int64_t lane : chosen_in(last)) {
      grow::GrownNetwork network = brought(lane);
      if (!environments_.world().leads()) continue;
      grow::NetworkOrigin& origin = network.description.origin;
      origin.run = fmt::format("evaluate, {}, episode {}", name, episode + 1);
      origin.lane = lane;
      origin.epoch = last.epoch;
      const double accuracy = last.lanes[static_cast<size_t>(lane)].good_accuracy;
      if (!std::isnan(accuracy)) origin.validation_accuracy = accuracy;
      origin.test_accuracy = tested[static_cast<size_t>(lane)].accuracy;
      export_network(network,
                     folder_ / fmt::format("c{}_{}_episode{}_lane{}", controller + 1, file_label(name),
                                           episode + 1, lane),
                     environments_.population(0).blueprints());
    }
  }

 private:
  // The lanes that rank 0 chooses, which sees all of them. A network that was not scored is the best only
  // where none was.
  std::vector<int64_t> chosen_in(const train::EpochRecord& last) const {
    std::vector<int64_t> chosen;
    double best = 0;
    for (const train::LaneRecord& lane : last.lanes) {
      if (lane.outcome == LaneOutcome::kRetired) continue;
      const double accuracy = std::isnan(lane.good_accuracy) ? -1 : lane.good_accuracy;
      if (lanes_ == KeptLanes::kBest && !chosen.empty()) {
        if (!(accuracy > best)) continue;
        chosen.clear();
      }
      chosen.push_back(lane.lane);
      best = accuracy;
    }
    chosen.resize(static_cast<size_t>(environments_.num_lanes()), -1);  // of one length at all ranks
    environments_.world().broadcast(std::as_writable_bytes(std::span(chosen)));
    std::erase(chosen, -1);
    return chosen;
  }

  // The network of a lane, at rank 0.
  grow::GrownNetwork brought(int64_t env) {
    ranks::World& world = environments_.world();
    grow::GrownNetwork network{.description = described_};
    ByteWriter writer;
    for (size_t s = 0; s < environments_.num_shards(); ++s) {
      const std::vector<int64_t>& envs = environments_.shard(s).setup().envs;
      const auto found = std::ranges::find(envs, env);
      if (found == envs.end()) continue;
      network = grow::network_of(environments_.population(s), found - envs.begin(), described_);
      if (!world.leads()) visit_network(writer, network);
    }
    if (world.is_alone()) return network;
    for (const ranks::Bytes& bytes : world.gather(std::span<const std::byte>(writer.bytes())))
      if (!bytes.empty()) {
        ByteReader reader(bytes);
        visit_network(reader, network);
      }
    return network;
  }

  std::filesystem::path folder_;
  KeptLanes lanes_;
  train::PopulationTrainer& environments_;
  grow::NetworkDescription described_;
};

nlohmann::ordered_json environment(const EvaluateConfig& options, std::span<const train::ShardSetup> shards,
                                   const ranks::World& world) {
  const data::ResidentDataset& first = *shards.front().dataset;
  const train::PopulationConfig shard =
      train::options_of_part(options.population, std::ssize(shards) * world.size());
  nlohmann::ordered_json devices;
  for (const DeviceName& device : train::devices_of(options.population))
    devices.push_back({{"device", device.text()},
                       {"precision", precision_name(train::precision_type(options.population.precision,
                                                                          torch_device(device)))}});
  return {{"devices", devices},
          {"ranks", world.size()},
          {"threads", at::get_num_threads()},
          {"deterministic", options.population.deterministic},
          {"validation_batch",
           train::scored_batch(shard, first.device.is_cuda(),
                               train::samples_of_part(shard, first.validation.num_samples()))}};
}

nlohmann::ordered_json line_of(const EvaluatedEpisode& done, size_t lane) {
  nlohmann::ordered_json line{{"kind", name_of(run::LineKind::kEvaluatedLane)},
                              {"controller", done.controller},
                              {"episode", done.episode},
                              {"lane", lane},
                              {"test_accuracy", done.tested[lane].accuracy},
                              {"return", done.record.returns[lane]},
                              {"parameters", done.record.last.lanes[lane].num_parameters},
                              {"added_parameters", done.record.added[lane]},
                              {"seeds_kept", done.record.seeds_kept[lane]},
                              {"rollbacks", done.record.last.lanes[lane].num_rollbacks},
                              {"illegal_actions", done.illegal[lane]}};
  for (size_t term = 0; term < done.reward_terms.size(); ++term)
    line[fmt::format("rewards/{}", done.reward_terms[term])] = done.record.terms[lane][term];
  return line;
}

void put(nlohmann::ordered_json& line, const std::string& name, const Interval& interval) {
  line[name] = interval.mean;
  line[name + "_95"] = interval.half_width;
}

nlohmann::ordered_json line_of(const ControllerScores& scores, const ControllerScores& first) {
  nlohmann::ordered_json line{{"kind", name_of(run::LineKind::kEvaluated)},
                              {"controller", scores.name},
                              {"episodes", scores.num_episodes}};
  put(line, "test_accuracy", scores.interval(scores.accuracy));
  put(line, "test_accuracy_over_first", scores.gain_over(first));
  line["test_accuracy_over_first_p"] = scores.chance_over(first);
  put(line, "return", scores.interval(scores.returns));
  put(line, "added_parameters", scores.interval(scores.added));
  put(line, "seeds_kept", scores.interval(scores.kept));
  line["lost"] = scores.num_lost;
  line["illegal_actions"] = scores.num_illegal;
  line["intervals_over"] = scores.num_episodes > 1 ? "episodes" : "networks";
  return line;
}

nlohmann::ordered_json pair_line(const ControllerScores& scores, const ControllerScores& other) {
  nlohmann::ordered_json line{
      {"kind", name_of(run::LineKind::kCompared)}, {"controller", scores.name}, {"over", other.name}};
  put(line, "test_accuracy_difference", scores.gain_over(other));
  line["test_accuracy_difference_p"] = scores.chance_over(other);
  return line;
}

// Played and over.
int64_t episodes_in(const ControllerScores& scores, const EvaluateConfig& options) {
  return std::ssize(scores.accuracy) / options.population.lanes;
}

// What makes episodes of one comparison: those of another could not be told from them.
std::string compared_in(const EvaluateConfig& options) {
  const train::PopulationConfig& population = options.population;
  return fmt::format("--lanes {} --host {} --episode-length {} --batches-per-step {} --seed {}",
                     population.lanes, population.host, population.epochs, population.batches_per_step,
                     population.seed);
}

// What --allow-change let through and no comparison can go on with.
void check_state(const ComparisonState& state, const EvaluateConfig& options) {
  if (const std::string now = compared_in(options); state.compared != now)
    fail_usage(
        "--allow-change: the episodes of this comparison are of {}, and would go on with {}: one that goes "
        "on "
        "keeps them; begin anew with --restart fresh, or give another --run-dir",
        state.compared, now);
  for (size_t c = 0; c < state.scores.size(); ++c) {
    const ControllerScores& scores = state.scores[c];
    const bool is_same = c < options.controllers.size() && scores.name == options.controllers[c] &&
                         scores.num_episodes == options.episodes &&
                         episodes_in(scores, options) <= options.episodes;
    if (!is_same)
      fail_usage(
          "--allow-change: {} was controller {} of this comparison, {} episodes of it: one that goes on "
          "keeps its --episodes and its --controllers in their order, and may add controllers at their end; "
          "begin anew with --restart fresh",
          scores.name, c + 1, scores.num_episodes);
  }
}

// Policies and recordings may have changed since a comparison began, under the same names.
std::map<std::string, uint32_t> checksums_of(const EvaluateConfig& options) {
  std::map<std::string, uint32_t> files;
  for (const std::string& name : options.controllers) {
    const std::string path = controller_file(name, kControllersFlag);
    // One that is not there is refused where it is read.
    if (std::filesystem::is_regular_file(path)) files[path] = crc32c(map_file(path).bytes());
  }
  return files;
}

void check_same_files(const ComparisonState& state, const std::map<std::string, uint32_t>& now,
                      const std::string& run) {
  for (const auto& [file, checksum] : state.files)
    if (const auto found = now.find(file); found != now.end() && found->second != checksum)
      fail_usage(
          "run directory '{}' holds a comparison with another '{}': the file has changed since; give another "
          "--run-dir, or --restart fresh to play all of it",
          run, file);
}

// What a run that was thrown away wrote down; a recording that this one follows stays.
void remove_recordings(const std::filesystem::path& run, const std::map<std::string, uint32_t>& followed) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  std::vector<fs::path> old;
  for (const fs::directory_entry& entry : fs::directory_iterator(run / kRecordings, ignored))
    if (entry.path().extension() == ".jsonl" && std::ranges::none_of(followed, [&](const auto& file) {
          return fs::equivalent(entry.path(), file.first, ignored);
        }))
      old.push_back(entry);
  for (const fs::path& file : old) fs::remove(file, ignored);
  fs::remove(run / kRecordings, ignored);  // unless something is left in it
}

}  // namespace

train::JobNeeds needs_of(const EvaluateConfig& options, const train::GrowthSpace& space) {
  train::JobNeeds needs;
  for (const std::string& name : options.controllers) {
    const train::JobNeeds own = NamedController(name, kEvaluateFlags).needs(options, space);
    if (own.growth) needs.growth = own.growth;
    needs.policies.insert(needs.policies.end(), own.policies.begin(), own.policies.end());
  }
  return needs;
}

bool compared_these_files(const std::filesystem::path& run, const EvaluateConfig& options) {
  if (!std::filesystem::exists(run)) return false;
  const auto checkpoint =
      run::newest_checkpoint(run::CheckpointFolder(run / run::kCheckpoints), [](const std::string&) {});
  if (!checkpoint) return false;
  const nlohmann::ordered_json state =
      object_field(checkpoint->manifest, "state", fmt::format("checkpoint '{}'", checkpoint->path.string()));
  return state.value("files", nlohmann::ordered_json()) == nlohmann::ordered_json(checksums_of(options));
}

std::vector<ControllerScores> evaluate(const EvaluateConfig& options, std::vector<train::ShardSetup> shards,
                                       const EvaluateEvents& events, ranks::World& world) {
  ComparisonState state;
  evaluate(options, std::move(shards), events, state, world);
  return state.scores;
}

void evaluate(const EvaluateConfig& options, std::vector<train::ShardSetup> shards,
              const EvaluateEvents& events, ComparisonState& state, ranks::World& world) {
  check_controllers(options);
  check_exportable(options, shards.front());
  const std::shared_ptr<const data::ResidentDataset> dataset = shards.front().dataset;
  train::PopulationTrainer environments(options.population, std::move(shards),
                                        train::policy_device_of(options), train::OnFailure::kRollBack,
                                        train::reading_config(options), world);
  if (events.batch_done) environments.at_every_batch(events.batch_done);
  Keeper keeper(options, environments, *dataset);
  // All of them first: a file that is damaged costs no episode.
  std::vector<std::unique_ptr<train::Controller>> controllers;
  for (const std::string& name : options.controllers)
    controllers.push_back(controller_named(name, options, environments.population(0), nullptr));
  if (events.begins) events.begins(environments.host_parameters());

  for (size_t c = 0; c < controllers.size(); ++c) {
    const std::string& name = options.controllers[c];
    if (c == state.scores.size()) state.scores.push_back({.name = name, .num_episodes = options.episodes});
    ControllerScores& scores = state.scores[c];
    if (episodes_in(scores, options) == options.episodes) continue;  // played before it was stopped
    if (!controllers[c]) {
      const train::Recording played = train::parse_recording(state.policy, "the first policy's recording");
      controllers[c] = controller_named(name, options, environments.population(0), &played);
    }
    train::Controller& controller = *controllers[c];
    train::Recorder recorder =
        state.playing.empty()
            ? train::Recorder(name, options.population, environments.population(0))
            : train::Recorder(train::parse_recording(state.playing, "the recording of " + name));
    for (int64_t episode = episodes_in(scores, options); episode < options.episodes; ++episode) {
      const std::string title = fmt::format("{}, episode {}/{}", name, episode + 1, options.episodes);
      EvaluatedEpisode done{.controller = name, .episode = episode + 1};
      done.record = train::play_episode(
          environments, controller, train::kFirstHeldOutRound + episode,
          {.title = title,
           .progress = events.progress,
           .step_done = [&](int64_t, const train::EpochRecord& step) { recorder.add_step(step); }});
      done.reward_terms = environments.reward_terms();
      done.illegal = controller.num_illegal();
      done.illegal.resize(static_cast<size_t>(options.population.lanes));
      done.tested = environments.test();
      // From here on nothing is interrupted: state and lines belong together.
      recorder.end_episode(done.record.last);
      state.playing = train::text_of(recorder.recording());
      const train::EpisodeRecord& record = done.record;
      for (const train::LaneScore& tested : done.tested) scores.accuracy.push_back(tested.accuracy);
      keeper.keep(name, c, episode, record.last, done.tested);
      scores.added.insert(scores.added.end(), record.added.begin(), record.added.end());
      scores.kept.insert(scores.kept.end(), record.seeds_kept.begin(), record.seeds_kept.end());
      scores.returns.insert(scores.returns.end(), record.returns.begin(), record.returns.end());
      scores.num_lost += record.num_lost();
      scores.num_illegal += std::accumulate(done.illegal.begin(), done.illegal.end(), int64_t{0});
      if (events.episode_done) events.episode_done(done);
      if (events.episode_saved && episode + 1 < options.episodes) events.episode_saved();
    }
    if (events.recorded) events.recorded(c, recorder.recording());
    if (state.policy.empty() && policy_file_in(name, kControllersFlag)) state.policy = state.playing;
    state.playing.clear();
    if (events.controller_done) events.controller_done(scores, state.scores.front());
    if (events.episode_saved) events.episode_saved();
  }
}

EvaluateResult run_evaluate_job(const EvaluateJob& job, const EvaluateEvents& told, ranks::World& world) {
  EvaluateConfig options = job.evaluate;
  options.population = train::placed(options.population, world);
  const EvaluateEvents events = world.leads() ? told : EvaluateEvents{};
  // Before any data is read. Two of one name could not be told apart in the run's lines.
  split_names("--controllers", fmt::format("{}", fmt::join(options.controllers, ",")));
  check_controllers(options);
  run::Run run(job.run, "evaluate", job.recorded, events.run, world);
  if (world.leads() && !run.has_begun_before()) check_keep(options);  // the others may not see it
  const JobScope scope(options.population, train::torch_devices_of(options));
  std::vector<train::ShardSetup> shards = shards_of(options, events.progress);
  train::check_devices(train::options_of_rank(options.population, world), shards,
                       needs_of(options, train::space_of(shards.front())));
  check_exportable(options, shards.front());
  const std::shared_ptr<const data::ResidentDataset> dataset = shards.front().dataset;
  for (const std::string& controller : options.controllers) check_can_decide(*dataset, controller);
  if (!options.keep.empty() && options.keep_lanes == KeptLanes::kBest && options.population.lanes > 1 &&
      dataset->validation.num_samples() == 0)
    fail_usage("--keep {}: with --validation 0 no network is the best; give --keep-lanes all", options.keep);
  ComparisonState state;
  const auto files = checksums_of(options);
  state.compared = compared_in(options);
  state.files = files;
  run.begin({.environment = environment(options, shards, world),
             .dataset = dataset_facts(*dataset),
             .choices = convolution_choices(),
             .curves = run::Run::Curves::kNone},
            [&](run::StateArchive& archive) {
              state.visit_state(archive);
              if (!archive.is_loading()) return;
              check_state(state, options);
              check_same_files(state, files, run.path().string());
              state.files = files;
            });
  if (world.leads() && !run.is_resumed()) remove_recordings(run.path(), files);
  // Line by line while it plays, so that the page of a comparison under way shows what there is.
  EvaluateEvents written = events;
  written.episode_done = [&](const EvaluatedEpisode& done) {
    if (!world.leads()) return;  // it has its own lanes alone
    for (size_t lane = 0; lane < done.tested.size(); ++lane) run.write_metrics(line_of(done, lane));
    if (events.episode_done) events.episode_done(done);
  };
  written.controller_done = [&](const ControllerScores& scores, const ControllerScores& first) {
    if (!world.leads()) return;
    run.write_metrics(line_of(scores, first));
    for (const ControllerScores& other : state.scores)
      if (&other != &scores) run.write_metrics(pair_line(scores, other));
    if (events.controller_done) events.controller_done(scores, first);
  };
  written.recorded = [&](size_t controller, const train::Recording& recording) {
    if (!world.leads()) return;  // it may have another disk
    run::make_folder(run.path() / kRecordings);
    run.write_file(recording_file(controller, recording.controller), train::text_of(recording));
    if (events.recorded) events.recorded(controller, recording);
  };
  written.episode_saved = [&] {
    run.save_now();
    if (events.episode_saved) events.episode_saved();
  };
  written.batch_done = [&] {
    run.at_batch();
    if (events.batch_done) events.batch_done();
  };
  run.guard([&] {
    evaluate(options, std::move(shards), written, state, world);
    run.save_last();
  });
  if (!dataset->device.is_cpu()) write_convolutions(run);
  EvaluateResult result{.scores = state.scores, .seconds = run.seconds(), .run_dir = run.path()};
  run.write_metrics({{"kind", name_of(run::LineKind::kResult)},
                     {"episodes", options.episodes},
                     {"seconds", result.seconds}});
  run.finish();
  return result;
}

}  // namespace espalier::jobs
