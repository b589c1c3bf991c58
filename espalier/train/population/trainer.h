// The networks of a job: a list of shards, trained and asked under one controller, in episodes.
//
// Kept true: network e lives in shard e mod D (of all ranks), as its lane e / D; what it does in a round
// depends on (options, e, round) alone, whoever else is on its device (with plan `split` also on how many
// share the device's pass over the data); all advance together, batch by batch. An epoch is queued as a whole
// and read on the device, the controller acts there where it can, then one copy brings everything to the
// host, which decodes it.
//
// Several processes: the shards of all ranks are one list, rank by rank, and each rank makes its own. Rank 0
// decides for all lanes, from what the others tell once per step, and has the whole record; the others have
// that of their lanes. Every call here is made by all ranks. Ranks that share batches instead
// (ShardSetup::batch_world) all have the same lanes, read the same sums and so decide alike, each by itself:
// the trainer's own world is one process then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "espalier/ranks/world.h"
#include "espalier/train/population/episode_returns.h"
#include "espalier/train/population/epoch_buffer.h"
#include "espalier/train/population/epoch_reading.h"
#include "espalier/train/population/lane_messages.h"
#include "espalier/train/population/shard.h"
#include "espalier/train/population/shard_setup.h"
#include "espalier/train/step/timing.h"

namespace espalier::train {

// What a program brings of its own.
struct PopulationParts {
  grow::HostMaker host = nullptr;  // none: the one that the options name
  grow::BlueprintRegistry blueprints = {};
  OnFailure on_failure = OnFailure::kRollBack;
  ReadingConfig reading = {};
};

class PopulationTrainer {
 public:
  // On the devices that the options name: reads the data, makes the shards.
  explicit PopulationTrainer(const PopulationConfig& options, const PopulationParts& parts = {},
                             const Progress& progress = {});
  // options: of all lanes together; shards: those of this process; acting: where controllers act.
  PopulationTrainer(const PopulationConfig& options, std::vector<ShardSetup> shards, at::Device acting,
                    OnFailure on_failure, const ReadingConfig& reading = {},
                    ranks::World& world = ranks::World::alone());

  // All lanes start over; the epochs that follow see samples in an order of this round's own. Nothing is
  // allocated.
  void begin_episode(int64_t round);
  // Network i begins as the i-th of these; before the first epoch.
  void begin_as(const std::vector<grow::GrownNetwork>& networks);
  // Network i begins with the i-th of these, [L][S]; before the first epoch. Empty: bare.
  void begin_with(const std::vector<std::vector<SlotState>>& states);
  EpochRecord train_epoch(Controller& controller, const Progress& progress = {});
  // In the order of environments; at other ranks than 0 those of their lanes, and zeros.
  std::vector<LaneScore> test(const Progress& progress = {});

  // Called between two batches, when all shards have done the one before, wherever a checkpoint may be taken:
  // all that the next batch depends on is what visit_state() tells.
  void at_every_batch(std::function<void()> call) { at_batch_ = std::move(call); }
  void visit_state(run::StateArchive& archive);
  // What the steps since the last call took, those of all devices together.
  PartTimes take_times();

  int64_t num_lanes() const { return options_.lanes; }
  int64_t num_slots() const { return population(0).num_slots(); }
  int64_t episode_length() const { return options_.epochs; }
  int64_t epochs_done() const { return shards_.front()->epochs_done(); }  // in the episode
  int64_t host_parameters() const { return population(0).host().num_parameters(); }
  size_t num_shards() const { return shards_.size(); }
  int64_t num_retired() const;  // in the whole job: asks all ranks
  ranks::World& world() const { return world_; }
  Shard& shard(size_t index) { return *shards_[index]; }
  grow::NetworkStack& population(size_t index) const { return shards_[index]->population(); }
  const EpisodeReturns& returns() const { return returns_; }  // in the episode so far
  const std::vector<std::string>& reward_terms() const { return reading_->term_names(); }

 private:
  GraphWork graph_work() const;
  size_t reading_rows() const { return static_cast<size_t>(reading_->rows().size(0)); }
  int64_t bytes_moved() const;  // by this process so far
  std::vector<LaneMessage> remote_lanes();
  void tell_lanes(const std::vector<EpochRecord>& records);
  std::vector<EpochRecord> finish_epoch();
  std::vector<SeedAction> choices(const std::vector<EpochRecord>& records,
                                  const std::vector<LaneMessage>& remote, Controller& controller) const;
  void act(std::vector<EpochRecord>& records, std::vector<LaneMessage>& remote,
           const std::vector<SeedAction>& actions);

  PopulationConfig options_;  // for all lanes together
  ranks::World& world_;
  std::vector<int64_t> remote_envs_;  // lanes that other ranks have
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<EpochBuffer> buffer_;
  std::unique_ptr<EpochReading> reading_;
  EpisodeReturns returns_;
  std::vector<int64_t> ops_;  // [L] SeedOp of the last decision
  StepTiming acting_;
  std::function<void()> at_batch_;  // may be empty
};

}  // namespace espalier::train
