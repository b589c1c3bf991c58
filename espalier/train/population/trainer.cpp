#include "espalier/train/population/trainer.h"

#include <ATen/ops/bincount.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/grow/network_file.h"
#include "espalier/run/archive.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/episode_seed.h"
#include "espalier/train/population/setup.h"

namespace espalier::train {
namespace {

std::vector<ShardSetup> made_shards(const PopulationConfig& options, const PopulationParts& parts,
                                    const Progress& progress) {
  std::vector<ShardSetup> shards;
  for (const DeviceName& device : devices_of(options)) {
    shards.push_back(shard_on(device, options, progress));
    shards.back().host = parts.host;
    shards.back().blueprints = parts.blueprints;
  }
  return shards;
}

// What guessing reaches on the validation split, and costs on any.
GuessingLevel guessing_level(const data::ResidentDataset& dataset, const PopulationConfig& options) {
  const double loss = std::log(static_cast<double>(dataset.num_classes()));
  const int64_t samples = dataset.validation.num_samples();
  if (samples == 0) return {.loss = loss};
  const at::Tensor counts = at::bincount(dataset.validation.labels.to(at::kCPU));
  return {.accuracy = counts.max().item<double>() / static_cast<double>(samples),
          .num_samples = samples_of_part(options, samples),
          .loss = loss};
}

// Where one of the job's shards is.
struct ShardPlace {
  int64_t rank = 0;
  size_t shard = 0;  // its number among those of its rank
  std::string device;
};

// The shards of all ranks, rank by rank.
std::vector<ShardPlace> shards_of_all(ranks::World& world, const std::vector<ShardSetup>& own) {
  std::string devices;
  for (const ShardSetup& shard : own) devices += shard.device.text() + "\n";
  std::vector<ShardPlace> places;
  const std::vector<std::string> all = world.all_gather(devices);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::istringstream lines(all[rank]);
    size_t shard = 0;
    for (std::string device; std::getline(lines, device);)
      places.push_back({static_cast<int64_t>(rank), shard++, device});
  }
  return places;
}

}  // namespace

PopulationTrainer::PopulationTrainer(const PopulationConfig& options, const PopulationParts& parts,
                                     const Progress& progress)
    : PopulationTrainer(options, made_shards(options, parts, progress),
                        torch_device(devices_of(options).front()), parts.on_failure, parts.reading) {}

PopulationTrainer::PopulationTrainer(const PopulationConfig& options, std::vector<ShardSetup> shards,
                                     at::Device acting, OnFailure on_failure, const ReadingConfig& reading,
                                     ranks::World& world)
    : options_(options), world_(world), acting_(acting, options.time_every) {
  const std::vector<ShardPlace> places = shards_of_all(world, shards);
  if (std::ssize(places) > num_lanes())
    fail_usage("--lanes {}: want at least one network for each of the {} devices of {} ranks", num_lanes(),
               places.size(), world.size());
  std::vector<std::vector<int64_t>> envs(shards.size());
  std::vector<std::string> env_devices;
  for (int64_t env = 0; env < num_lanes(); ++env) {
    const ShardPlace& place = places[static_cast<size_t>(env % std::ssize(places))];
    if (place.rank == world.rank())
      envs[place.shard].push_back(env);
    else
      remote_envs_.push_back(env);
    env_devices.push_back(place.device);
  }
  for (size_t s = 0; s < shards.size(); ++s) {
    ShardSetup& setup = shards[s];
    PopulationConfig& part = setup.options;
    // One size for all shards, wherever a lane lives.
    part.validation_batch =
        validation_batch(options_of_part(options_, std::ssize(places)), setup.dataset->device.is_cuda());
    part.lanes = std::ssize(envs[s]);
    part.controller = "none";  // one decides for all of them
    part.time_every = options.time_every;
    setup.envs = envs[s];
    setup.env_devices = env_devices;
    setup.on_failure = on_failure;
    shards_.push_back(std::make_unique<Shard>(std::move(setup)));
  }
  buffer_ = std::make_unique<EpochBuffer>(std::move(envs), num_slots(), acting, num_lanes());
  reading_ = std::make_unique<EpochReading>(
      reading, ReadingOptions{.lanes = num_lanes(),
                              .slots = num_slots(),
                              .episode_length = options.epochs,
                              .losing = on_failure == OnFailure::kRollBack ? policy::Losing::kGoesOn
                                                                           : policy::Losing::kEndsEpisode,
                              .governor = options.governor,
                              .guessing = guessing_level(*shards_.front()->setup().dataset, options),
                              .device = acting,
                              .graphs = options.graphs ? Graphs::kOn : Graphs::kOff});
  returns_.begin(num_lanes(), std::ssize(reward_terms()));
  ops_.assign(static_cast<size_t>(num_lanes()), static_cast<int64_t>(SeedOp::kWait));
}

void PopulationTrainer::begin_episode(int64_t round) {
  const Shard& first = *shards_.front();
  const int64_t pass = first.batches_per_pass();
  const int64_t passes =
      (options_.epochs * first.batches_per_epoch() + pass - 1) / pass;  // begun by an episode
  for (const auto& shard : shards_) shard->begin_episode(episode_seed(options_.seed, round), round * passes);
  reading_->begin_episode();
  returns_.begin(num_lanes(), std::ssize(reward_terms()));
  std::ranges::fill(ops_, static_cast<int64_t>(SeedOp::kWait));
}

void PopulationTrainer::begin_as(const std::vector<grow::GrownNetwork>& networks) {
  for (const auto& shard : shards_) {
    std::vector<grow::GrownNetwork> here;
    for (int64_t lane = 0; lane < shard->options().lanes; ++lane)
      here.push_back(networks.at(static_cast<size_t>(shard->env_of(lane))));
    shard->begin_as(here);
  }
}

void PopulationTrainer::begin_with(const std::vector<std::vector<SlotState>>& states) {
  if (states.empty()) return;
  for (const auto& shard : shards_) {
    std::vector<std::vector<SlotState>> here;
    for (int64_t lane = 0; lane < shard->options().lanes; ++lane)
      here.push_back(states.at(static_cast<size_t>(shard->env_of(lane))));
    shard->begin_with(here);
  }
}

EpochRecord PopulationTrainer::train_epoch(Controller& controller, const Progress& progress) {
  const auto began = std::chrono::steady_clock::now();
  const GraphWork before = graph_work();
  const int64_t bytes_before = bytes_moved();
  for (const auto& shard : shards_) shard->begin_epoch(*buffer_);
  for (int64_t env = 0; env < num_lanes(); ++env)
    buffer_->set_op(env, static_cast<SeedOp>(ops_[static_cast<size_t>(env)]));
  buffer_->upload();
  // All shards do a batch before any does the next: a checkpoint between two batches is then of one moment,
  // whoever has which lanes when it is loaded.
  const Shard& first = *shards_.front();
  for (const auto& shard : shards_) shard->begin_training();
  while (first.has_batches_left()) {
    throw_if_interrupted();
    for (const auto& shard : shards_) shard->step().run();
    if (at_batch_) at_batch_();
    if (progress) progress(first.title(), first.batches_done(), first.batches_per_epoch());
  }
  for (size_t s = 0; s < shards_.size(); ++s) {
    shards_[s]->queue_validation(progress);
    buffer_->collect(s, shards_[s]->step().sums(), shards_[s]->validation().sums());
  }
  std::vector<LaneMessage> remote = remote_lanes();
  acting_.begin_step();
  acting_.begin(StepPart::kAct);
  EpochSums sums = buffer_->sums(shards_.front()->telemetry());
  sums.is_validated = shards_.front()->is_validated();
  const EpochReadings read = reading_->read(sums, epochs_done());
  // Who does not decide takes its sums along instead, to tell them.
  const at::Tensor carried = world_.leads() ? controller.act(read) : buffer_->packed();
  acting_.end(StepPart::kAct);
  buffer_->read(reading_->rows(), carried);
  std::vector<EpochRecord> records = finish_epoch();
  tell_lanes(records);
  act(records, remote, choices(records, remote, controller));

  EpochRecord all{.epoch = records.front().epoch,
                  .is_validated = records.front().is_validated,
                  .num_scored = records.front().num_scored};
  for (EpochRecord& record : records) std::ranges::move(record.lanes, std::back_inserter(all.lanes));
  for (LaneMessage& lane : remote) all.lanes.push_back(std::move(lane.record));
  std::ranges::sort(all.lanes, {}, &LaneRecord::lane);
  // Own lanes, and at rank 0, which judges all of them, those of others.
  for (const LaneRecord& lane : all.lanes)
    if (lane.compared_anew) reading_->forget(lane.lane);
  returns_.add(all);
  all.graphs = graph_work();
  all.graphs -= before;
  all.bytes_between_ranks = bytes_moved() - bytes_before;
  all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return all;
}

// Lanes are shared out or batches are: one of the two worlds is a process alone, and moves nothing.
int64_t PopulationTrainer::bytes_moved() const {
  return world_.bytes_moved() + shards_.front()->setup().batch_world->bytes_moved();
}

// Rank 0: what the other ranks' lanes came to, put where controllers read it.
std::vector<LaneMessage> PopulationTrainer::remote_lanes() {
  std::vector<LaneMessage> remote;
  if (world_.is_alone() || !world_.leads()) return remote;
  std::vector<EpochBuffer::RemoteLane> entries;
  for (const ranks::Bytes& bytes : world_.gather(std::span<const std::byte>()))
    for (LaneMessage& lane : lane_messages_in(bytes)) {
      entries.push_back(lane.entry);
      remote.push_back(std::move(lane));
    }
  buffer_->set_remote(entries);
  buffer_->upload();
  return remote;
}

// The other ranks: what rank 0 waits for in remote_lanes().
void PopulationTrainer::tell_lanes(const std::vector<EpochRecord>& records) {
  if (world_.leads()) return;
  std::vector<LaneMessage> messages;
  for (size_t s = 0; s < shards_.size(); ++s) {
    std::vector<LaneReport> reports = shards_[s]->reports_of(records[s]);
    for (const LaneRecord& record : records[s].lanes) {
      const std::vector<double> column = buffer_->column_of(record.lane);
      messages.push_back({.entry = buffer_->entry_of(record.lane, std::span(column).subspan(reading_rows())),
                          .record = record});
      const auto report = std::ranges::find(reports, record.lane, &LaneReport::lane);
      if (report != reports.end()) messages.back().report = std::move(*report);
    }
  }
  world_.gather(encode(std::move(messages)));
}

// What was copied, decoded for the lanes it is about.
std::vector<EpochRecord> PopulationTrainer::finish_epoch() {
  std::vector<EpochRecord> records;
  for (const auto& shard : shards_) {
    std::vector<LaneReadings> read;
    for (int64_t lane = 0; lane < shard->population().num_lanes(); ++lane)
      read.push_back(reading_->decode(
          std::span<const double>(buffer_->column_of(shard->env_of(lane))).first(reading_rows())));
    records.push_back(shard->finish_epoch(read));
  }
  return records;
}

// What the controller says, [L]; rank 0 asks it and tells the others.
std::vector<SeedAction> PopulationTrainer::choices(const std::vector<EpochRecord>& records,
                                                   const std::vector<LaneMessage>& remote,
                                                   Controller& controller) const {
  std::vector<SeedAction> all(static_cast<size_t>(num_lanes()));
  if (world_.leads()) {
    std::vector<LaneReport> reports;
    for (size_t s = 0; s < shards_.size(); ++s)
      std::ranges::move(shards_[s]->reports_of(records[s]), std::back_inserter(reports));
    for (const LaneMessage& lane : remote)
      if (lane.report) reports.push_back(*lane.report);
    std::ranges::sort(reports, {}, &LaneReport::lane);
    for (LaneReport& report : reports) {
      const std::vector<double> column = buffer_->column_of(report.lane);
      report.carried.assign(column.begin() + static_cast<ptrdiff_t>(reading_rows()), column.end());
    }
    const std::vector<SeedAction> actions = controller.decide(reports);
    if (actions.size() != reports.size())
      fail("the controller gave {} actions for {} lanes", actions.size(), reports.size());
    for (size_t i = 0; i < actions.size(); ++i) all[static_cast<size_t>(reports[i].lane)] = actions[i];
  }
  world_.broadcast(std::as_writable_bytes(std::span(all)));
  return all;
}

// Told to the lanes they are about; what gates said of remote ones comes to rank 0.
void PopulationTrainer::act(std::vector<EpochRecord>& records, std::vector<LaneMessage>& remote,
                            const std::vector<SeedAction>& actions) {
  const auto action_of = [&](const LaneRecord& record) { return actions[static_cast<size_t>(record.lane)]; };
  for (size_t env = 0; env < actions.size(); ++env) ops_[env] = static_cast<int64_t>(actions[env].op);
  std::vector<GateMessage> gates;
  for (size_t s = 0; s < shards_.size(); ++s)
    for (size_t lane = 0; lane < records[s].lanes.size(); ++lane) {
      LaneRecord& record = records[s].lanes[lane];
      if (record.outcome != LaneOutcome::kTrained) continue;  // nothing to decide
      shards_[s]->act(static_cast<int64_t>(lane), record, action_of(record));
      if (record.action.op != SeedOp::kWait) gates.push_back({record.lane, record.gate});
    }
  if (world_.is_alone()) return;
  const std::vector<ranks::Bytes> told =
      world_.gather(world_.leads() ? std::vector<std::byte>() : encode(std::move(gates)));
  for (LaneMessage& lane : remote) lane.record.action = action_of(lane.record);
  for (const ranks::Bytes& bytes : told)
    for (GateMessage& message : gate_messages_in(bytes)) {
      const auto found =
          std::ranges::find(remote, message.lane, [](const LaneMessage& lane) { return lane.record.lane; });
      if (found != remote.end()) found->record.gate = std::move(message.gate);
    }
}

GraphWork PopulationTrainer::graph_work() const {
  GraphWork all;
  for (const auto& shard : shards_) all += shard->graph_work();
  return all;
}

PartTimes PopulationTrainer::take_times() {
  PartTimes times = acting_.take();
  for (const auto& shard : shards_) times += shard->timing().take();
  return times;
}

int64_t PopulationTrainer::num_retired() const {
  int64_t retired = 0;
  for (const auto& shard : shards_) retired += shard->num_retired();
  return world_.sum(retired);
}

void PopulationTrainer::visit_state(run::StateArchive& archive) {
  if (archive.is_loading() && archive.has_value("population0.epoch"))
    fail(
        "an older program wrote this checkpoint, shard by shard: go on with that program, or begin anew with "
        "--restart fresh");
  for (const auto& shard : shards_) {
    const run::LaneShare share{.envs = shard->setup().envs, .num_lanes = num_lanes()};
    archive.with_lanes(share, [&] { shard->visit_state(archive); });
  }
  if (archive.is_loading()) archive.pass_over_lanes(remote_envs_);
  archive.part("reading", [&] {
    reading_->visit_state(archive);
    archive.list("ops", ops_);
  });
  archive.part("returns", [&] { returns_.visit_state(archive); });
}

std::vector<LaneScore> PopulationTrainer::test(const Progress& progress) {
  std::vector<LaneScore> scores(static_cast<size_t>(num_lanes()));
  for (const auto& shard : shards_) {
    const std::vector<LaneScore> own = shard->test(progress);
    for (size_t lane = 0; lane < own.size(); ++lane)
      scores[static_cast<size_t>(shard->env_of(static_cast<int64_t>(lane)))] = own[lane];
  }
  const std::vector<ranks::Bytes> told = world_.gather(std::as_bytes(std::span(scores)));
  for (size_t rank = 1; rank < told.size(); ++rank) {
    std::vector<LaneScore> theirs(scores.size());
    if (told[rank].size() != theirs.size() * sizeof(LaneScore))
      fail("rank {} tested another number of networks than {}", rank, theirs.size());
    std::memcpy(theirs.data(), told[rank].data(), told[rank].size());
    // A rank's own stand where they belong, and zeros elsewhere.
    for (size_t env = 0; env < scores.size(); ++env) {
      scores[env].loss += theirs[env].loss;
      scores[env].accuracy += theirs[env].accuracy;
    }
  }
  return scores;
}

}  // namespace espalier::train
