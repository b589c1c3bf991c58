#include "espalier/data/iterator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>

#include "espalier/core/error.h"
#include "espalier/tensor/device.h"

namespace espalier::data {

// This process's environments on one device.
struct GatherIterator::Group {
  std::shared_ptr<const ResidentDataset> dataset;
  const ResidentSplit* split = nullptr;
  LanePlan lanes;
  std::vector<int64_t> envs;        // [L] global
  std::vector<int64_t> lane_ids;    // [L]
  at::Tensor lane_ids_on_device;    // [L] i64
  std::unique_ptr<BatchRing> ring;  // made at the first stacked batch
  // Host residency: batches made ahead on a stream of their own, oldest first.
  std::optional<c10::Stream> copy_stream;
  std::deque<StackedBatch> ahead;
  int64_t next_ahead = 0;  // the batch to make next

  bool reads_host() const { return dataset->residency == Residency::kHost; }
};

IteratorOptions IteratorOptions::training(PlanOptions plan, at::ScalarType type) {
  IteratorOptions options{.plan = std::move(plan), .type = type};
  options.plan.order = SampleOrder::kShuffled;
  options.plan.last_batch = LastBatch::kDrop;
  options.augmentation.enabled = true;
  return options;
}

IteratorOptions IteratorOptions::evaluation(PlanOptions plan, at::ScalarType type) {
  IteratorOptions options{.plan = std::move(plan), .type = type};
  options.plan.kind = PlanKind::kShared;
  options.plan.order = SampleOrder::kFile;
  options.plan.last_batch = LastBatch::kKeep;
  options.augmentation.enabled = false;
  return options;
}

void EnvBatch::record_stream(c10::Stream stream) const {
  if (labels.is_cpu()) return;
  for (const at::Tensor& field : fields) field.record_stream(stream);
  labels.record_stream(stream);
}

namespace {

int64_t samples_of(const std::vector<std::shared_ptr<const ResidentDataset>>& datasets, Split split) {
  if (datasets.empty()) fail_usage("iterator: want at least one dataset, got none");
  return datasets.front()->split(split).num_samples();
}

}  // namespace

GatherIterator::GatherIterator(const IteratorOptions& options,
                               std::vector<std::shared_ptr<const ResidentDataset>> datasets, Split split)
    : options_(options),
      split_(split),
      plan_(options.plan, samples_of(datasets, split)),
      position_(at::empty({2}, at::kLong)) {
  options_.augmentation.seed = options.plan.seed;
  for (const int64_t env : options.envs)
    if (env < 0 || env >= options.plan.n_envs)
      fail_usage("iterator: environment {} is not among the plan's {}", env, options.plan.n_envs);
  const auto is_mine = [&](int64_t env) {
    return options.envs.empty() || std::ranges::find(options.envs, env) != options.envs.end();
  };
  for (const PlanGroup& planned : plan_.groups()) {
    PlanGroup mine{.device = planned.device, .lanes = planned.lanes};
    for (size_t i = 0; i < planned.envs.size(); ++i) {
      if (!is_mine(planned.envs[i])) continue;
      mine.envs.push_back(planned.envs[i]);
      mine.lane_ids.push_back(planned.lane_ids[i]);
    }
    if (!mine.envs.empty()) groups_.push_back(make_group(mine, datasets));
  }
}

GatherIterator::~GatherIterator() = default;

GatherIterator::Group GatherIterator::make_group(
    const PlanGroup& planned, const std::vector<std::shared_ptr<const ResidentDataset>>& datasets) {
  const c10::Device device = torch_device(planned.device);
  const auto dataset =
      std::ranges::find_if(datasets, [&](const auto& candidate) { return candidate->device == device; });
  if (dataset == datasets.end())
    fail_usage("iterator: no dataset was given for {}, which has {} environment(s)", planned.device.text(),
               planned.envs.size());
  Group group;
  group.dataset = *dataset;
  group.split = &group.dataset->split(split_);
  if (group.split->num_samples() != plan_.num_samples())
    fail("iterator: the dataset on {} has {} samples, another {}", planned.device.text(),
         group.split->num_samples(), plan_.num_samples());
  group.lanes = planned.lanes;
  group.envs = planned.envs;
  group.lane_ids = planned.lane_ids;
  group.lane_ids_on_device = at::tensor(group.lane_ids, at::kLong).to(device);
  if (group.reads_host())
    group.copy_stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return group;
}

void GatherIterator::begin_epoch(uint64_t epoch) {
  restore({.epoch = epoch, .batch = 0});
}

IteratorState GatherIterator::state() const {
  check_begun();
  return state_;
}

void GatherIterator::restore(const IteratorState& state) {
  if (state.batch < 0 || state.batch > length())
    fail_usage("iterator: batch {} is not in an epoch of {}", state.batch, length());
  state_ = state;
  begun_ = true;
  for (Group& group : groups_) {
    group.ahead.clear();
    group.next_ahead = state.batch;
  }
}

void GatherIterator::check_begun() const {
  if (!begun_) fail_usage("iterator: no epoch has begun; call begin_epoch() first");
}

const at::Tensor& GatherIterator::position(int64_t batch) {
  auto* values = position_.mutable_data_ptr<int64_t>();
  values[0] = static_cast<int64_t>(state_.epoch);
  values[1] = batch;
  return position_;
}

GatherCall GatherIterator::gather_call(size_t index) const {
  const Group& group = groups_.at(index);
  GatherCall call;
  for (const ResidentField& field : group.split->fields) {
    call.fields.push_back(field.values);
    call.affine.push_back(field.affine);
  }
  call.labels = group.split->labels;
  call.lane_ids = group.lane_ids_on_device;
  call.plan = group.lanes;
  call.augmentation = options_.augmentation;
  return call;
}

std::optional<std::vector<EnvBatch>> GatherIterator::next() {
  check_begun();
  if (state_.batch >= length()) return std::nullopt;
  const std::vector<int64_t> counts = plan_.counts(state_.batch);
  std::vector<EnvBatch> batches;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    GatherCall call = gather_call(g);
    const auto options = at::TensorOptions().device(group.dataset->device);
    int64_t with_samples = 0;
    for (const int64_t env : group.envs) {
      const int64_t count = counts[static_cast<size_t>(env)];
      if (count == 0) break;  // the rest of the group has none either
      ++with_samples;
      EnvBatch batch{.env = env};
      for (const ResidentField& field : group.split->fields) {
        const FieldSpec& spec = field.spec;
        batch.fields.push_back(empty_images({count, spec.channels, spec.height, spec.width},
                                            group.dataset->format, options.dtype(options_.type)));
        call.out.push_back(batch.fields.back());
      }
      batch.labels = at::empty({count}, options.dtype(at::kLong));
      call.labels_out.push_back(batch.labels);
      batches.push_back(std::move(batch));
    }
    if (with_samples == 0) continue;
    call.lane_ids = call.lane_ids.narrow(0, 0, with_samples);
    call.position = position(state_.batch);
    gather_into(call);
  }
  std::ranges::sort(batches, {}, &EnvBatch::env);
  ++state_.batch;
  return batches;
}

StackedBatch GatherIterator::produce(Group& group, int64_t batch, c10::Stream stream) {
  const bool broadcast = options_.plan.kind == PlanKind::kShared;
  const int64_t lanes = broadcast ? 1 : static_cast<int64_t>(group.envs.size());
  if (!group.ring) {
    RingOptions ring{.capacity = options_.ring_capacity,
                     .device = group.dataset->device,
                     .lanes = lanes,
                     .batch = group.lanes.batch,
                     .type = options_.type,
                     .format = group.dataset->format};
    for (const ResidentField& field : group.split->fields)
      ring.image_sizes.push_back({field.spec.channels, field.spec.height, field.spec.width});
    group.ring = std::make_unique<BatchRing>(ring);
  }
  StackedBatch made{.envs = group.envs, .lease = group.ring->acquire(stream)};
  for (const int64_t lane : group.lane_ids) made.counts.push_back(lane_range(group.lanes, lane, batch).count);

  GatherCall call = gather_call(static_cast<size_t>(&group - groups_.data()));
  if (broadcast) call.lane_ids = call.lane_ids.narrow(0, 0, 1);
  call.position = position(batch);
  const BatchBuffers& buffers = made.lease.buffers();
  call.out = buffers.fields;
  call.labels_out = {buffers.labels};
  call.mask_out = buffers.mask;
  {
    std::optional<c10::StreamGuard> guard;
    if (!group.dataset->device.is_cpu()) guard.emplace(stream);
    gather_into(call);
  }
  made.lease.mark_ready(stream);

  made.fields = buffers.fields;
  made.labels = buffers.labels;
  made.mask = buffers.mask;
  if (broadcast) {
    const auto all = static_cast<int64_t>(group.envs.size());
    for (at::Tensor& field : made.fields) field = field.expand({all, -1, -1, -1, -1});
    made.labels = made.labels.expand({all, -1});
    made.mask = made.mask.expand({all, -1});
  }
  return made;
}

// The batch at the iterator's place. From host memory it was made ahead, and more are begun while buffers are
// free.
StackedBatch GatherIterator::take(Group& group) {
  const c10::Stream consumer = current_stream(group.dataset->device);
  if (!group.reads_host()) return produce(group, state_.batch, consumer);
  if (group.ahead.empty()) {
    group.ahead.push_back(produce(group, state_.batch, *group.copy_stream));
    group.next_ahead = state_.batch + 1;
  }
  StackedBatch batch = std::move(group.ahead.front());
  group.ahead.pop_front();
  while (group.next_ahead < length() && group.ring->num_free() > 0)
    group.ahead.push_back(produce(group, group.next_ahead++, *group.copy_stream));
  batch.lease.wait_ready(consumer);
  return batch;
}

std::optional<std::vector<StackedBatch>> GatherIterator::next_leases() {
  check_begun();
  if (state_.batch >= length()) return std::nullopt;
  plan_.counts(state_.batch);  // refuses a hole
  std::vector<StackedBatch> batches;
  for (Group& group : groups_) batches.push_back(take(group));
  ++state_.batch;
  return batches;
}

std::optional<std::vector<StackedBatch>> GatherIterator::next_stacked() {
  if (options_.plan.kind == PlanKind::kShared)
    fail_usage("iterator: plan `shared` gives all lanes the same samples: use eval_stacked()");
  return next_leases();
}

std::optional<std::vector<StackedBatch>> GatherIterator::eval_stacked() {
  if (options_.plan.kind != PlanKind::kShared)
    fail_usage("iterator: eval_stacked() wants plan `shared`; this plan gives every lane samples of its own");
  return next_leases();
}

}  // namespace espalier::data
