// The gather plan: which samples each environment gets, batch by batch. Pure logic over device names; no
// tensor, no device. Made over all environments of a job, whichever process holds them, so that several
// processes change nothing.
//
// Kept true: environments are grouped by device in the order in which devices first appear; the order of a
// group's samples is a pure function of (seed + 1009 * stable index, epoch) for `split` by device, of (seed,
// epoch) for `split` over all environments, and of (seed, global environment, epoch) for `own`; every
// environment sees the same number of batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/machine/device_name.h"
#include "espalier/data/lane_plan.h"

namespace espalier::data {

enum class SampleOrder { kShuffled, kFile };
enum class LastBatch { kDrop, kKeep };
// Who shares one pass over the data out, with plan `split`: the environments of a device, or all of them.
enum class SplitBy { kDevice, kWorld };

struct PlanOptions {
  PlanKind kind = PlanKind::kSplit;
  int64_t n_envs = 1;
  int64_t batch_size_per_env = 1;
  std::vector<std::string> env_devices = {"cpu"};  // [n_envs]
  uint64_t seed = 0;
  SampleOrder order = SampleOrder::kShuffled;
  LastBatch last_batch = LastBatch::kDrop;
  SplitBy split_by = SplitBy::kDevice;
  std::optional<int> num_cuda_devices;  // given: a device that the machine does not have is an error
};

// The environments of one device.
struct PlanGroup {
  DeviceName device;
  std::vector<int64_t> envs;      // global indices, ascending
  std::vector<int64_t> lane_ids;  // what lane_range() and sample_at() call `lane`, one per environment
  LanePlan lanes;
};

class GatherPlan {
 public:
  GatherPlan(const PlanOptions& options, int64_t num_samples);

  const PlanOptions& options() const { return options_; }
  const std::vector<PlanGroup>& groups() const { return groups_; }
  int64_t num_samples() const { return num_samples_; }

  // Batches per epoch: floor (drop) or ceil (keep) of N / samples used up by a batch, the minimum over
  // devices.
  int64_t length() const { return length_; }

  // How many samples every environment gets in a batch, [n_envs]. Environments that get none come last: any
  // other order (those of two devices interleaved so that a partial batch leaves a hole) is an error, not a
  // silent misalignment.
  std::vector<int64_t> counts(int64_t batch_index) const;

  // The samples of one environment in one batch, in order. For tests and for looking: devices evaluate the
  // plan themselves.
  std::vector<int64_t> samples(int64_t env, uint64_t epoch, int64_t batch_index) const;

 private:
  PlanOptions options_;
  int64_t num_samples_;
  std::vector<PlanGroup> groups_;
  int64_t length_ = 0;
};

// The samples that `--validation` sets aside: `count` of [0, num_samples), chosen by the seed, ascending.
std::vector<int64_t> validation_samples(int64_t num_samples, int64_t count, uint64_t seed);

}  // namespace espalier::data
