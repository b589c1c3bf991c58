#include "espalier/data/plan.h"

#include <algorithm>
#include <limits>

#include "espalier/core/error.h"

namespace espalier::data {

GatherPlan::GatherPlan(const PlanOptions& options, int64_t num_samples)
    : options_(options), num_samples_(num_samples) {
  if (options.batch_size_per_env < 1)
    fail_usage("batch_size_per_env: want at least 1, got {}", options.batch_size_per_env);
  if (options.n_envs < 1) fail_usage("n_envs: want at least 1, got {}", options.n_envs);
  if (static_cast<int64_t>(options.env_devices.size()) != options.n_envs)
    fail_usage("env_devices: want one name for each of the {} environments, got {}", options.n_envs,
               options.env_devices.size());
  // A permutation's domain is the next power of two.
  if (num_samples < 0 || num_samples >= int64_t{1} << 62)
    fail_usage("num_samples: want 0 to below 2^62, got {}", num_samples);

  const bool is_split = options.kind == PlanKind::kSplit;
  const bool is_by_device = is_split && options.split_by == SplitBy::kDevice;
  for (int64_t env = 0; env < options.n_envs; ++env) {
    const DeviceName device =
        parse_device(options.env_devices[static_cast<size_t>(env)], options.num_cuda_devices);
    auto group = std::ranges::find(groups_, device, &PlanGroup::device);
    if (group == groups_.end()) group = groups_.insert(group, PlanGroup{.device = device});
    const auto rank = static_cast<int64_t>(group->envs.size());
    group->envs.push_back(env);
    group->lane_ids.push_back(is_by_device ? rank : env);
  }

  length_ = std::numeric_limits<int64_t>::max();
  for (PlanGroup& group : groups_) {
    const auto index = static_cast<uint64_t>(group.device.index);
    group.lanes = {
        .kind = options.kind,
        .shuffled = options.order == SampleOrder::kShuffled,
        .key = is_by_device ? options.seed + 1009 * index : options.seed,
        .num_samples = num_samples,
        .batch = options.batch_size_per_env,
        .group_lanes = is_split && !is_by_device ? options.n_envs : static_cast<int64_t>(group.envs.size()),
    };
    if (!fits(group.lanes))
      fail_usage(
          "batch_size_per_env: want {} times the {} environments of {} times {} samples below 2^63; lower "
          "the "
          "batch",
          options.batch_size_per_env, group.lanes.group_lanes, group.device.text(), num_samples);
    const int64_t stride = group.lanes.stride();
    const int64_t whole = num_samples / stride;
    const bool partial = options.last_batch == LastBatch::kKeep && num_samples % stride != 0;
    length_ = std::min(length_, whole + (partial ? 1 : 0));
  }
}

std::vector<int64_t> GatherPlan::counts(int64_t batch_index) const {
  if (batch_index < 0) fail_usage("batch: want at least 0, got {}", batch_index);
  std::vector<int64_t> counts(static_cast<size_t>(options_.n_envs), 0);
  if (batch_index >= length_) return counts;
  for (const PlanGroup& group : groups_)
    for (size_t i = 0; i < group.envs.size(); ++i)
      counts[static_cast<size_t>(group.envs[i])] =
          lane_range(group.lanes, group.lane_ids[i], batch_index).count;

  const auto first_empty = std::ranges::find(counts, 0);
  const auto after = std::find_if(first_empty, counts.end(), [](int64_t count) { return count > 0; });
  if (after != counts.end())
    fail(
        "batch {}: environment {} gets samples though environment {} before it gets none; the last, partial "
        "batch does not fit the way environments are spread over devices: drop it, or give each device "
        "neighbouring environments",
        batch_index, after - counts.begin(), first_empty - counts.begin());
  return counts;
}

std::vector<int64_t> GatherPlan::samples(int64_t env, uint64_t epoch, int64_t batch_index) const {
  for (const PlanGroup& group : groups_) {
    const auto found = std::ranges::find(group.envs, env);
    if (found == group.envs.end()) continue;
    const int64_t lane = group.lane_ids[static_cast<size_t>(found - group.envs.begin())];
    const LaneRange range = lane_range(group.lanes, lane, batch_index);
    std::vector<int64_t> samples;
    samples.reserve(static_cast<size_t>(range.count));
    for (int64_t i = 0; i < range.count; ++i)
      samples.push_back(sample_at(group.lanes, lane, epoch, range.begin + i));
    return samples;
  }
  fail_usage("environment: want 0 to {}, got {}", options_.n_envs - 1, env);
}

std::vector<int64_t> validation_samples(int64_t num_samples, int64_t count, uint64_t seed) {
  if (count < 0 || count >= std::max<int64_t>(num_samples, 1))
    fail_usage("validation: want 0 to {} of the {} training samples, got {}",
               std::max<int64_t>(num_samples, 1) - 1, num_samples, count);
  std::vector<int64_t> samples;
  if (count == 0) return samples;
  samples.reserve(static_cast<size_t>(count));
  const Permutation order(seed, 0, static_cast<uint64_t>(num_samples), Purpose::kValidation);
  for (int64_t i = 0; i < count; ++i)
    samples.push_back(static_cast<int64_t>(order(static_cast<uint64_t>(i))));
  std::ranges::sort(samples);
  return samples;
}

}  // namespace espalier::data
