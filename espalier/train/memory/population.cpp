#include "espalier/train/memory/population.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <ranges>

#include "espalier/grow/blend/gate.h"
#include "espalier/grow/host/registry.h"
#include "espalier/lanes/conv/few/channels.h"
#include "espalier/policy/action/space.h"
#include "espalier/train/memory/allowances.h"
#include "espalier/train/memory/step_tape.h"
#include "espalier/train/population/setup.h"

namespace espalier::train {
namespace {

constexpr int64_t kLaneBytes =
    kMasterBytes + 2 * 8 + 1;  // an optimiser's: rate, decay, momentum, what is frozen

// How many values of one parameter a lane has, and whether layers compute with a copy.
struct ParameterShape {
  int64_t values = 0;
  bool has_copy = false;
};

std::vector<ParameterShape> shapes_of(const std::vector<lanes::NamedParameter>& parameters) {
  std::vector<ParameterShape> shapes;
  for (const lanes::NamedParameter& named : parameters)
    shapes.push_back({named.parameter->storage().numel(),
                      named.parameter->compute().scalar_type() != named.parameter->value().scalar_type()});
  return shapes;
}

// What a group of stacked parameters takes, by what it is for.
struct GroupBytes {
  int64_t values = 0;       // masters, gradients and copies
  int64_t optimizer = 0;    // momentum, rates, what is frozen
  int64_t in_snapshot = 0;  // masters and momentum of one lane, as clones
  int64_t gradients = 0;    // as a backward pass returns them

  GroupBytes& operator+=(const GroupBytes& other) {
    values += other.values;
    optimizer += other.optimizer;
    in_snapshot += other.in_snapshot;
    gradients += other.gradients;
    return *this;
  }
};

class PopulationWalk {
 public:
  explicit PopulationWalk(const PopulationNeeds& needs)
      : needs_(needs),
        lanes_(needs.options.lanes),
        batch_(needs.options.batch),
        compute_(precision_type(needs.options.precision, needs.device)),
        item_(static_cast<int64_t>(c10::elementSize(compute_))) {
    if (needs.host) {
      cnn_ = *needs.host;
      cnn_.lanes = lanes_;
      frame_ = cnn_.frame();
      slots_ = grow::slots_by_action(cnn_);
      add_cnn();
    } else {
      grow::Host& one = *needs.own_host.value().lane;
      frame_ = one.frame();
      slots_ = one.slots();
      host_parameters_ = shapes_of(one.parameters());
      for (const grow::Host::Buffer& buffer : one.buffers())
        host_buffers_.push_back(buffer.tensor[0].numel());
    }
  }

  MemoryPlan plan() const {
    const GroupBytes host = host_group();
    MemoryPlan plan = data_parts(needs_.data);
    plan.add(batches("training", lanes_));
    plan.add(at_validation().batches("validation", 1));
    plan.add("hosts: weights and gradients", host.values + running_bytes());
    plan.add("hosts: optimiser", host.optimizer);
    plan.add("tables and sums", table_bytes() + sums_bytes());
    int64_t snapshot = host.in_snapshot + running_snapshot();
    if (needs_.growth) {
      GroupBytes seeds;
      for (size_t slot = 0; slot < slots_.size(); ++slot)
        if (may_grow(slot))
          for (const int32_t kind : kinds()) seeds += seed_group(slot, kind);
      plan.add("seeds of every blueprint and slot: weights and gradients", seeds.values);
      plan.add("seeds of every blueprint and slot: optimiser", seeds.optimizer);
      snapshot += snapshot_of_seeds();
    }
    const int64_t kept = needs_.on_failure == OnFailure::kRollBack ? lanes_ * snapshot : 0;
    plan.add("last good state of every lane", kept);
    if (needs_.ranks > 1) plan.add("gradients on their way to other ranks", exchange_bytes());
    // Training kinds and evaluation kinds; with growth as many of each as are kept.
    const int64_t most_graphs = 2 * StepGraphs::Options{}.capacity;
    CachedBlocks blocks;
    tape().train(blocks);
    at_validation().tape().evaluate(blocks);
    plan.add(step_parts("a step", {.device = needs_.device,
                                   .peak_bytes = blocks.peak_bytes(),
                                   .graph_bytes = blocks.reserved_bytes(),
                                   .graphs = needs_.options.graphs && needs_.ranks == 1,
                                   .num_graphs = needs_.growth ? most_graphs : 2,
                                   .has_convolutions = !has_own_kernels()}));
    if (!needs_.device.is_cpu()) {
      plan.add("tables on their way to the device", table_bytes() + sums_bytes(), MemoryPlace::kHost);
      // torch's pinned memory comes in powers of two.
      const int64_t state = lanes_ * snapshot + kept;
      plan.add("a checkpoint on its way to the disk",
               static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(state))), MemoryPlace::kHost);
    }
    if (!needs_.host && !needs_.own_host->held) {
      const std::string& name = needs_.own_host->name;
      plan.unknown.push_back("what layers of " +
                             (name.empty() ? "the program's own host" : "host '" + name + "'") +
                             " keep in a step");
    }
    return plan;
  }

 private:
  // Whether no convolution of the host is cuDNN's, which alone wants workspaces.
  bool has_own_kernels() const {
    if (!needs_.host) return false;
    bool all = item_ == 2 && cnn_.kernel_size == 3 && cnn_.in_channels == lanes::kFirstChannels;
    for (int64_t block = 0; block < cnn_.n_blocks; ++block)
      all = all && lanes::is_few(cnn_.base_channels << block);
    return all;
  }

  // The same with the batches that are scored.
  PopulationWalk at_validation() const {
    PopulationWalk other = *this;
    const bool on_cuda = !needs_.device.is_cpu();
    other.batch_ = needs_.data.num_validation > 0
                       ? scored_batch(needs_.options, on_cuda,
                                      samples_of_part(needs_.options, needs_.data.num_validation))
                       : validation_batch(needs_.options, on_cuda);
    return other;
  }

  static grow::SeedShape shape_of(const grow::SlotSpec& slot) {
    return {.channels = slot.channels, .height = slot.height, .width = slot.width};
  }

  int64_t values_of(const grow::SlotSpec& slot) const { return slot.channels * slot.height * slot.width; }

  // Activations [L,B,...] of so many values per sample.
  int64_t stack(int64_t values) const { return stacked_bytes(lanes_, {batch_, values}, item_); }

  MemoryPlan batches(const std::string& use, int64_t lanes) const {
    return batch_parts(use, {.residency = needs_.data.residency,
                             .device = needs_.device,
                             .lanes = lanes,
                             .batch = batch_,
                             .image_sizes = {{frame_.in_channels, frame_.height, frame_.width}},
                             .type = compute_});
  }

  GroupBytes group(const std::vector<ParameterShape>& parameters) const {
    GroupBytes bytes;
    for (const ParameterShape& each : parameters) {
      const int64_t stacked = stacked_bytes(lanes_, {each.values}, kMasterBytes);
      const int64_t clone = snapshot_bytes(each.values * kMasterBytes);
      bytes.values += 2 * stacked;
      if (each.has_copy && item_ < kMasterBytes) bytes.values += stacked_bytes(lanes_, {each.values}, item_);
      bytes.gradients += stacked;
      bytes.in_snapshot += clone;
      if (needs_.options.momentum > 0) {
        bytes.optimizer += stacked;
        bytes.in_snapshot += clone;
      }
    }
    if (!parameters.empty()) bytes.optimizer += lanes_ * kLaneBytes;
    return bytes;
  }

  // What a tensor of its own takes.
  int64_t snapshot_bytes(int64_t bytes) const {
    return needs_.device.is_cpu() ? bytes : allowance::rounded(bytes, allowance::kBlockBytes);
  }

  std::vector<ParameterShape> block_shapes(int64_t block) const {
    const int64_t filters = cnn_.base_channels << block;
    const int64_t channels = block == 0 ? cnn_.in_channels : filters / 2;
    return {{filters * channels * cnn_.kernel_size * cnn_.kernel_size, true}, {filters}, {filters}};
  }

  void add_cnn() {
    for (int64_t block = 0; block < cnn_.n_blocks; ++block) {
      for (const ParameterShape& each : block_shapes(block)) host_parameters_.push_back(each);
      // Means and variances of its norm.
      for (int i = 0; i < 2; ++i) host_buffers_.push_back(cnn_.base_channels << block);
    }
    const int64_t features = cnn_.base_channels << (cnn_.n_blocks - 1);
    host_parameters_.push_back({cnn_.num_classes * features});
    host_parameters_.push_back({cnn_.num_classes});
  }

  GroupBytes host_group() const { return group(host_parameters_); }

  int64_t running_bytes() const {
    int64_t bytes = 0;
    for (const int64_t values : host_buffers_) bytes += stacked_bytes(lanes_, {values}, kMasterBytes);
    return bytes;
  }
  int64_t running_snapshot() const {
    int64_t bytes = 0;
    for (const int64_t values : host_buffers_) bytes += snapshot_bytes(values * kMasterBytes);
    return bytes;
  }

  // The flat copies that GradientExchange sends: of all gradients, and of the running statistics unless norms
  // are synced.
  int64_t exchange_bytes() const {
    int64_t values = 0;
    for (const ParameterShape& each : host_parameters_) values += each.values;
    if (!needs_.options.sync_norm)
      for (const int64_t each : host_buffers_) values += each;
    return lanes_ * values * kMasterBytes;
  }

  int64_t table_bytes() const {
    return grow::NetworkStack::table_bytes(lanes_, std::ssize(slots_), needs_.blueprints.size());
  }
  int64_t sums_bytes() const {
    const int64_t slots = std::ssize(slots_);
    const int64_t of_slot = static_cast<int64_t>(sizeof(SlotState) + sizeof(float));  // its amplitude too
    return lanes_ * (8 * (StepMetrics::num_rows(slots) + 2 * 3 * (1 + slots)) + slots * of_slot);
  }

  // All but noop, which nobody plants.
  std::vector<int32_t> kinds() const {
    std::vector<int32_t> all;
    for (int32_t kind = 0; kind < needs_.blueprints.size(); ++kind)
      if (kind != policy::kNoopBlueprint) all.push_back(kind);
    return all;
  }

  bool may_grow(size_t slot) const {
    const std::vector<bool>& enabled = needs_.growth->enabled_slots;
    return enabled.empty() || enabled[slot];
  }

  // What the module itself says, built without memory: also of blueprints that are a user's own.
  std::vector<ParameterShape> seed_shapes(size_t slot, int32_t kind) const {
    const grow::SlotSpec& spec = slots_[slot];
    const grow::SeedBuild build{.shape = shape_of(spec),
                                .entries = 1,
                                .options = at::TensorOptions(at::kFloat).device(at::kMeta),
                                .compute = compute_};
    const auto module = needs_.blueprints.at(kind).make(build);
    std::vector<ParameterShape> shapes = shapes_of(module->parameters());
    grow::BlendGate gate(build);
    std::ranges::copy(shapes_of(gate.parameters()), std::back_inserter(shapes));
    return shapes;
  }

  // The seeds of all lanes, with their gates: storage is made for all at the first germination. The gates
  // have an optimiser of their own.
  GroupBytes seed_group(size_t slot, int32_t kind) const {
    GroupBytes bytes = group(seed_shapes(slot, kind));
    bytes.optimizer += lanes_ * kLaneBytes;
    if (needs_.options.seed_warm_up > 0 || needs_.options.seed_schedule) {  // the ages of both
      constexpr int64_t kAge = 8;
      bytes.optimizer += 2 * stacked_bytes(lanes_, {1}, kAge);
      bytes.in_snapshot += 2 * snapshot_bytes(kAge);
    }
    return bytes;
  }

  // Values per sample, as multiples of the slot's, that a seed of the kind keeps: those of one that does not
  // say are taken for the most that any does.
  double held_by(int32_t kind, const grow::SlotSpec& slot) const {
    const grow::SeedShape shape = shape_of(slot);
    if (const auto& held = needs_.blueprints.at(kind).held) return held(shape, needs_.device);
    double most = 0;
    for (const int32_t other : kinds())
      if (const auto& held = needs_.blueprints.at(other).held)
        most = std::max(most, held(shape, needs_.device));
    return most;
  }

  int32_t heaviest_kind(size_t slot) const {
    return std::ranges::max(kinds(), {}, [&](int32_t kind) { return held_by(kind, slots_[slot]); });
  }

  int64_t held_in(size_t slot) const {
    return static_cast<int64_t>(held_by(heaviest_kind(slot), slots_[slot]) *
                                static_cast<double>(values_of(slots_[slot])));
  }

  // For one lane, when the seeds that it may hold are those with most parameters.
  int64_t snapshot_of_seeds() const {
    std::vector<int64_t> bytes_by_slot;
    for (size_t slot = 0; slot < slots_.size(); ++slot)
      if (may_grow(slot))
        bytes_by_slot.push_back(std::ranges::max(kinds() | std::views::transform([&](int32_t kind) {
                                                   return seed_group(slot, kind).in_snapshot;
                                                 })));
    std::ranges::sort(bytes_by_slot, std::ranges::greater{});
    int64_t bytes = 0;
    for (size_t i = 0; i < bytes_by_slot.size() && static_cast<int64_t>(i) < needs_.growth->max_seeds; ++i)
      bytes += bytes_by_slot[i];
    return bytes;
  }

  // Where seeds stand when as many do as a lane may hold: where they weigh most.
  std::vector<size_t> standing() const {
    std::vector<size_t> places;
    if (!needs_.growth) return places;
    for (size_t slot = 0; slot < slots_.size(); ++slot)
      if (may_grow(slot)) places.push_back(slot);
    std::ranges::stable_sort(places, std::ranges::greater{}, [&](size_t slot) { return held_in(slot); });
    if (needs_.growth->max_seeds < std::ssize(places))
      places.resize(static_cast<size_t>(needs_.growth->max_seeds));
    return places;
  }

  // The training step: what each layer keeps, and the gradients that it works with on the way back.
  StepTape tape() const {
    const std::vector<size_t> seeds = standing();
    if (!needs_.host) return own_tape(seeds);
    const auto stands = [&](const grow::SlotSpec& slot) {
      return std::ranges::any_of(seeds, [&](size_t place) { return slots_[place].name == slot.name; });
    };
    StepTape tape;
    int64_t before = 0;  // values per sample that come into the block; the images are the batch's own
    for (const grow::SlotSpec& slot : grow::slots_by_execution(cnn_)) {
      const int64_t values = values_of(slot);
      if (slot.row == 0) {
        const bool is_pooled = slot.column < grow::num_pooled(cnn_);
        // On a GPU the norm pools too, where nothing stands in between; the CPU pools in a pass of its own.
        const bool pools_too = is_pooled && !stands(slot) && !needs_.device.is_cpu();
        const int64_t out = pools_too ? pooled(slot) : values;
        add_conv(tape, slot.column, before);
        std::vector<int64_t> held{stack(values)};
        if (pools_too) held.push_back(stack(out));  // the values that won their windows
        tape.add({.held = std::move(held), .forward = {stack(out)}, .gradient = stack(values)});
        before = out;
        if (stands(slot)) add_seeds(tape, slot);
        if (is_pooled && !pools_too) {
          tape.add({.held = {stack(values)}, .gradient = stack(values)});
          before = pooled(slot);
        }
      } else if (stands(slot)) {
        add_seeds(tape, slot);
      }
    }
    return tape;
  }

  // As layers of the size of its largest slot, since an evaluation keeps no more than what the next one
  // reads; the seeds behind them.
  StepTape own_tape(const std::vector<size_t>& seeds) const {
    StepTape tape;
    int64_t layer = frame_.in_channels * frame_.height * frame_.width;
    for (const grow::SlotSpec& slot : slots_) layer = std::max(layer, values_of(slot));
    const auto& held = needs_.own_host->held;
    for (int64_t left = held ? std::llround(held(frame_, needs_.device)) : 0; left > 0; left -= layer) {
      StepTape::Node node{.held = {stack(std::min(left, layer))},
                          .forward = {stack(layer)},
                          .gradient = stack(layer),
                          .backward = {stack(layer)}};
      if (left <= layer) node.parameters = {host_group().gradients};  // there when the way back begins
      tape.add(std::move(node));
    }
    for (const size_t place : seeds) add_seeds(tape, slots_[place]);
    return tape;
  }

  static int64_t pooled(const grow::SlotSpec& slot) {
    return slot.channels * (slot.height / 2) * (slot.width / 2);
  }

  // A convolution keeps what comes in.
  void add_conv(StepTape& tape, int64_t block, int64_t before) const {
    tape.add({.held = {stack(before)},
              .gradient = stack(before),
              .parameters = {group(block_shapes(block)).gradients}});
  }

  // The stacks of a slot, and the blend: on a GPU its result takes the place of the host's values; on the CPU
  // both are kept.
  void add_seeds(StepTape& tape, const grow::SlotSpec& slot) const {
    const auto place =
        static_cast<size_t>(std::ranges::find(slots_, slot.name, &grow::SlotSpec::name) - slots_.begin());
    const int64_t values = values_of(slot);
    StepTape::Node node{.forward = {stack(values)},
                        .gradient = stack(values),
                        .backward = {stack(values)},
                        .parameters = {group(seed_shapes(place, heaviest_kind(place))).gradients}};
    for (int64_t left = held_in(place) + (needs_.device.is_cpu() ? values : 0); left > 0; left -= values)
      node.held.push_back(stack(std::min(left, values)));
    tape.add(std::move(node));
  }

  const PopulationNeeds& needs_;
  grow::CnnHostOptions cnn_;  // where the host is one
  grow::HostFrame frame_;
  int64_t lanes_;
  int64_t batch_;
  at::ScalarType compute_;
  int64_t item_;
  std::vector<grow::SlotSpec> slots_;  // by action index
  std::vector<ParameterShape> host_parameters_;
  std::vector<int64_t> host_buffers_;  // values of a lane
};

}  // namespace

void set_host(PopulationNeeds& needs, const grow::HostFrame& frame, const grow::HostMaker& own) {
  needs.host = own ? std::nullopt : planned_host(needs.options, frame);
  needs.own_host.reset();
  if (needs.host) return;
  grow::HostBuild one{.frame = frame,
                      .options = at::TensorOptions(at::kFloat),
                      .compute = precision_type(needs.options.precision, needs.device)};
  one.frame.lanes = 1;
  one.frame.lane_ids = {};
  if (own) {
    needs.own_host = {.lane = own(one)};
    return;
  }
  const grow::HostKind& kind = grow::hosts().at(needs.options.host);
  needs.own_host = {.name = kind.name, .lane = kind.make(one), .held = kind.held};
}

MemoryPlan population_parts(const PopulationNeeds& needs) {
  return PopulationWalk(needs).plan();
}

}  // namespace espalier::train
