#include "espalier/lanes/optim/group_update.h"

#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "espalier/lanes/optim/gradients.h"
#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include <ATen/ops/empty.h>

#include <cstring>
#include <span>

#include "espalier/lanes/launch.h"
#include "espalier/lanes/optim/group_kernel.h"
#include "espalier/lanes/optim/parameter_table.h"
#include "espalier/tensor/device_table.h"
#endif

namespace espalier::lanes {
namespace {

void check(const std::vector<UpdatedGroup>& groups) {
  TORCH_CHECK(!groups.empty(), "GroupUpdate: groups: want the hosts at least, got none");
  const int64_t lanes = std::ssize(groups[0].lanes);
  for (size_t g = 0; g < groups.size(); ++g) {
    const UpdatedGroup& group = groups[g];
    TORCH_CHECK(!group.parameters.empty() && group.optimizer != nullptr, "GroupUpdate: groups[", g,
                "]: want parameters and their optimiser, got ", group.parameters.size(), " parameters");
    const int64_t entries = group.parameters[0]->value().size(0);
    TORCH_CHECK(std::ssize(group.lanes) == entries, "GroupUpdate: groups[", g, "].lanes: want [", entries,
                "], got [", group.lanes.size(), "]");
    for (size_t e = 0; e < group.lanes.size(); ++e)
      TORCH_CHECK(
          g == 0 ? group.lanes[e] == static_cast<int64_t>(e) : group.lanes[e] >= -1 && group.lanes[e] < lanes,
          "GroupUpdate: groups[", g, "].lanes[", e, "]: want ",
          g == 0 ? "the entry's own number, as the hosts come first" : "a lane or -1", ", got ",
          group.lanes[e]);
    for (const at::Tensor& given : {group.momentum_factors, group.weight_decays})
      TORCH_CHECK(given.defined() && given.dim() == 1 && given.size(0) == lanes &&
                      given.scalar_type() == at::kDouble && given.is_contiguous() &&
                      given.device() == group.parameters[0]->value().device(),
                  "GroupUpdate: groups[", g, "]: momentum_factors, weight_decays: want [", lanes,
                  "] Double where the parameters are, got ", given.defined() ? given.toString() : "none", " ",
                  given.defined() ? given.sizes() : at::IntArrayRef{});
  }
}

}  // namespace

#if ESPALIER_WITH_CUDA

// The lists of group_kernel.h, in one block that is uploaded when the groups change.
struct GroupUpdate::Lists {
  std::unique_ptr<DeviceTable> table;
  DeviceTable::Column<uint8_t> block;
  at::Tensor partial;   // [units] wide
  at::Tensor verdicts;  // [live entries] EntryVerdict, as bytes
  UpdateLists lists;
  int64_t generation = 0;
  int64_t most_units = 0, most_live = 0;  // that there is room for
  int64_t num_live = 0, num_units = 0;

  void fill(const std::vector<UpdatedGroup>& groups);
};

namespace {

int64_t units_of(int64_t values) {
  return (values + kUnitValues - 1) / kUnitValues;
}

GroupParameter parameter_of(const UpdatedGroup& group, size_t i) {
  const LaneParameter& parameter = *group.parameters[i];
  const at::Tensor& value = parameter.value();
  const at::Tensor& copy = parameter.compute();
  const int64_t values = value.size(0) > 0 ? value.numel() / value.size(0) : 0;
  TORCH_CHECK(values < int64_t{1} << 31, "GroupUpdate: want below 2^31 values per parameter, got ", values);
  GroupParameter listed{.value = value.data_ptr(),
                        .gradient = parameter.gradient().data_ptr(),
                        .lane_stride = value.stride(0),
                        .values = static_cast<int32_t>(values)};
  const at::Tensor momentum = group.optimizer->momentum(i);
  if (momentum.defined()) listed.momentum = momentum.data_ptr();
  if (copy.scalar_type() != value.scalar_type()) {
    TORCH_CHECK(copy.scalar_type() == at::kBFloat16 || copy.scalar_type() == at::kHalf,
                "LaneParameter: compute: want bf16 or f16 on CUDA, or the master's type, got ",
                copy.scalar_type());
    listed.copy = copy.data_ptr();
    listed.copy_stride = copy.stride(0);
    listed.copy_type = kernel_type(copy);
  }
  return listed;
}

GroupFacts facts_of(const UpdatedGroup& group) {
  const LaneSgdOptions& options = group.optimizer->options();
  GroupFacts facts{.optimizer_frozen = group.optimizer->frozen.const_data_ptr<bool>(),
                   .momentum_factors = group.momentum_factors.const_data_ptr<double>(),
                   .weight_decays = group.weight_decays.const_data_ptr<double>(),
                   .share = group.optimizer->share(),
                   .nesterov = options.nesterov};
  if (group.frozen.defined()) facts.frozen = group.frozen.const_data_ptr<bool>();
  if (group.norms.defined()) facts.norms = group.norms.data_ptr<double>();
  const at::Tensor ages = group.optimizer->ages();
  if (ages.defined()) {
    facts.ages = ages.data_ptr<double>();
    facts.age_stride = ages.stride(0);
  }
  return facts;
}

// Puts a list into the block, each on its own line.
class Packing {
 public:
  explicit Packing(DeviceTable::Column<uint8_t>& block) : block_(block) {}

  template <class T>
  const T* put(const std::vector<T>& list, size_t room) {
    const size_t at = used_;
    used_ += bytes_of<T>(room);
    std::memcpy(block_.host.data() + at, list.data(), list.size() * sizeof(T));
    return reinterpret_cast<const T*>(block_.device.const_data_ptr<uint8_t>() + at);
  }

  template <class T>
  static size_t bytes_of(size_t count) {
    return static_cast<size_t>(DeviceTable::bytes_of<T>(static_cast<int64_t>(count)));
  }

 private:
  DeviceTable::Column<uint8_t>& block_;
  size_t used_ = 0;
};

}  // namespace

void GroupUpdate::Lists::fill(const std::vector<UpdatedGroup>& groups) {
  std::vector<GroupFacts> facts;
  std::vector<GroupParameter> parameters;
  std::vector<LiveEntry> live;
  std::vector<UpdateUnit> units;
  for (const UpdatedGroup& group : groups) {
    const auto first = static_cast<int32_t>(parameters.size());
    for (size_t i = 0; i < group.parameters.size(); ++i) parameters.push_back(parameter_of(group, i));
    for (size_t e = 0; e < group.lanes.size(); ++e) {
      if (group.lanes[e] < 0) continue;
      LiveEntry entry{.group = static_cast<int32_t>(facts.size()),
                      .entry = static_cast<int32_t>(e),
                      .lane = static_cast<int32_t>(group.lanes[e]),
                      .first_unit = static_cast<int32_t>(units.size())};
      for (auto p = first; p < std::ssize(parameters); ++p)
        for (int64_t part = 0; part < units_of(parameters[static_cast<size_t>(p)].values); ++part)
          units.push_back({static_cast<int32_t>(live.size()), p, static_cast<int32_t>(part)});
      entry.num_units = static_cast<int32_t>(units.size()) - entry.first_unit;
      live.push_back(entry);
    }
    facts.push_back(facts_of(group));
  }
  num_live = std::ssize(live);
  num_units = std::ssize(units);

  // Room for twice as much, as networks grow. All four lists fit where live entries and units do, with as
  // many groups as live entries and as many parameters as units; groups without an entry in use are few.
  const auto lists_bytes = [](size_t most_live, size_t most_units) {
    return Packing::bytes_of<int32_t>(2) + Packing::bytes_of<GroupFacts>(most_live) +
           Packing::bytes_of<GroupParameter>(most_units) + Packing::bytes_of<LiveEntry>(most_live) +
           Packing::bytes_of<UpdateUnit>(most_units);
  };
  const auto wanted_live = static_cast<int64_t>(std::max(live.size(), facts.size())),
             wanted_units = static_cast<int64_t>(std::max(units.size(), parameters.size()));
  const at::Tensor& any = groups[0].parameters[0]->value();
  if (wanted_live > most_live || wanted_units > most_units) {
    most_live = 2 * wanted_live;
    most_units = 2 * wanted_units;
    const auto bytes =
        static_cast<int64_t>(lists_bytes(static_cast<size_t>(most_live), static_cast<size_t>(most_units)));
    table = std::make_unique<DeviceTable>(DeviceTable::bytes_of<uint8_t>(bytes), any.device());
    block = table->add<uint8_t>(bytes);
    const auto options = any.options().requires_grad(false);
    partial = at::empty({most_units}, options);
    verdicts = at::empty({most_live * static_cast<int64_t>(sizeof(EntryVerdict))}, options.dtype(at::kByte));
    generation += 1;
  }
  Packing packing(block);
  const auto room_live = static_cast<size_t>(most_live), room_units = static_cast<size_t>(most_units);
  lists.counts =
      packing.put(std::vector<int32_t>{static_cast<int32_t>(num_live), static_cast<int32_t>(num_units)}, 2);
  lists.groups = packing.put(facts, room_live);
  lists.parameters = packing.put(parameters, room_units);
  lists.live = packing.put(live, room_live);
  lists.units = packing.put(units, room_units);
  table->upload();
}

#else

struct GroupUpdate::Lists {
  int64_t generation = 0;
};

#endif

GroupUpdate::GroupUpdate() : lists_(std::make_unique<Lists>()) {}
GroupUpdate::~GroupUpdate() = default;

int64_t GroupUpdate::generation() const {
  return lists_->generation;
}

void GroupUpdate::check_inputs(const UpdateInputs& inputs) const {
  TORCH_CHECK(!groups_.empty(), "GroupUpdate: run: want groups before it, by set_groups()");
  const at::Tensor& any = groups_[0].parameters[0]->value();
  const int64_t lanes = any.size(0);
  const auto check_one = [&](const at::Tensor& given, int64_t size, at::ScalarType type, const char* name) {
    TORCH_CHECK(given.defined() && given.dim() == 1 && given.size(0) == size && given.scalar_type() == type &&
                    given.device() == any.device() && (any.is_cpu() || given.is_contiguous()),
                "GroupUpdate: ", name, ": want [", size, "] ", type, " on ", any.device(), ", dense, got ",
                given.defined() ? given.toString() : "none", " ",
                given.defined() ? given.sizes() : at::IntArrayRef{}, " on ",
                given.defined() ? given.device() : any.device());
  };
  check_one(inputs.losses, lanes, any.scalar_type(), "losses");
  check_one(inputs.is_active, lanes, at::kBool, "is_active");
  check_one(inputs.peak_rates, lanes, any.scalar_type(), "peak_rates");
  check_one(inputs.step, 1, at::kDouble, "step");
  if (inputs.scales.defined()) check_one(inputs.scales, lanes, at::kFloat, "scales");
  if (inputs.clip_norms.defined()) check_one(inputs.clip_norms, lanes, at::kDouble, "clip_norms");
}

void GroupUpdate::set_groups(std::vector<UpdatedGroup> groups) {
  check(groups);
  groups_ = std::move(groups);
#if ESPALIER_WITH_CUDA
  if (takes_update_kernel(groups_[0].parameters)) lists_->fill(groups_);
#endif
}

void GroupUpdate::run(const UpdateInputs& inputs, const UpdateSums& sums) {
  check_inputs(inputs);
#if ESPALIER_WITH_CUDA
  if (takes_update_kernel(groups_[0].parameters)) {
    const at::Tensor& any = groups_[0].parameters[0]->value();
    const c10::cuda::CUDAGuard guard(any.device());
    const auto stream = stream_of(any);
    const bool is_double = any.scalar_type() == at::kDouble;
    UpdateLanes lanes{.lanes = static_cast<int32_t>(groups_[0].lanes.size()),
                      .losses = inputs.losses.const_data_ptr(),
                      .is_active = inputs.is_active.const_data_ptr<bool>(),
                      .peak_rates = inputs.peak_rates.const_data_ptr(),
                      .step = inputs.step.data_ptr<double>(),
                      .schedule = inputs.schedule,
                      .smallest_scale = inputs.smallest_scale,
                      .norms = sums.norms.data_ptr<double>(),
                      .largest_norms = sums.largest_norms.data_ptr<double>(),
                      .non_finite = sums.non_finite.data_ptr<double>()};
    if (inputs.clip_norms.defined()) lanes.clip_norms = inputs.clip_norms.const_data_ptr<double>();
    if (inputs.scales.defined()) {
      lanes.scales = inputs.scales.const_data_ptr<float>();
      lanes.skipped = sums.skipped.data_ptr<double>();
      lanes.is_whole = sums.is_whole.data_ptr<bool>();
    }
    // Blocks for all the room and not for what is listed now: a replay may find more. A few waves at most.
    const Lists& here = *lists_;
    const auto unit_blocks = static_cast<int>(std::min<int64_t>(here.most_units, 2048));
    const auto live_blocks = static_cast<int>((here.most_live + 255) / 256);
    auto* const verdicts = reinterpret_cast<EntryVerdict*>(here.verdicts.data_ptr<uint8_t>());
    C10_CUDA_CHECK(
        launch_unit_squares(here.lists, lanes, is_double, here.partial.data_ptr(), unit_blocks, stream));
    C10_CUDA_CHECK(launch_verdicts(here.lists, lanes, is_double, here.partial.data_ptr(), verdicts,
                                   live_blocks, stream));
    C10_CUDA_CHECK(launch_group_sgd(here.lists, lanes, verdicts, is_double, unit_blocks, stream));
    return;
  }
#endif
  run_plainly(inputs, sums);
}

void GroupUpdate::run_plainly(const UpdateInputs& inputs, const UpdateSums& sums) {
  const c10::NoGradGuard no_grad;
  // On the CPU a read of memory, and no wait.
  const double step = *inputs.step.cpu().const_data_ptr<double>();
  const at::Tensor rates = (inputs.peak_rates.to(at::kDouble) * inputs.schedule.at(step))
                               .to(inputs.peak_rates.scalar_type());  // [L]
  const at::Tensor is_sound = at::isfinite(inputs.losses);            // [L] bool
  at::Tensor may_move;                                                // [L] bool: lanes that are updated
  for (const UpdatedGroup& group : groups_) {
    const bool is_host = &group == &groups_.front();
    const at::Tensor listed = at::tensor(group.lanes, at::kLong).to(is_sound.device());  // [E]
    const at::Tensor lanes = listed.clamp_min(0);  // an empty entry takes what lane 0 has, and is frozen
    if (inputs.scales.defined())
      scale_lane_gradients_(group.parameters, inputs.scales.reciprocal().index_select(0, lanes));
    const at::Tensor norms = lane_gradient_norms(group.parameters);  // [E]
    if (inputs.clip_norms.defined())
      clip_lane_gradients_(group.parameters, norms, inputs.clip_norms.index_select(0, lanes));
    const at::Tensor has_gradients = at::isfinite(norms);
    const bool falls = group.optimizer->share().falls;
    if (falls)
      group.optimizer->steps_left = at::full({1}, inputs.schedule.steps - step, inputs.step.options());
    group.optimizer->learning_rates.copy_((falls ? inputs.peak_rates : rates).index_select(0, lanes));
    group.optimizer->momentum_factors.copy_(group.momentum_factors.index_select(0, lanes));
    group.optimizer->weight_decays.copy_(group.weight_decays.index_select(0, lanes));
    if (is_host) {
      sums.norms.add_(norms);
      sums.largest_norms.copy_(at::maximum(sums.largest_norms, norms.to(at::kDouble)));
      may_move = inputs.is_active.logical_and(is_sound).logical_and(has_gradients);
      at::Tensor failed = may_move.logical_not().logical_and_(inputs.is_active);
      if (inputs.scales.defined()) {
        // What a lower scale may cure is left out and not flagged.
        const at::Tensor overflows = failed.logical_and(is_sound);
        failed =
            failed.logical_and(overflows.logical_not().logical_or_(inputs.scales <= inputs.smallest_scale));
        sums.skipped.add_(overflows);
        sums.is_whole.copy_(overflows.logical_not());
      }
      sums.non_finite.add_(failed);
      group.optimizer->step(may_move);
      continue;
    }
    // By selection, since an empty entry may hold anything; a lane has one entry in a group at most.
    if (group.norms.defined()) {
      std::vector<int64_t> entries;
      for (size_t e = 0; e < group.lanes.size(); ++e)
        if (group.lanes[e] >= 0) entries.push_back(static_cast<int64_t>(e));
      const at::Tensor used = at::tensor(entries, at::kLong).to(is_sound.device());
      group.norms.index_add_(0, lanes.index_select(0, used), norms.index_select(0, used).to(at::kDouble));
    }
    at::Tensor moves = may_move.index_select(0, lanes).logical_and_(has_gradients).logical_and_(listed.ge(0));
    if (group.frozen.defined()) moves.logical_and_(group.frozen.logical_not());
    group.optimizer->step(moves);
  }
  inputs.step.add_(1);
}

}  // namespace espalier::lanes
