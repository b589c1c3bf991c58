#include "espalier/train/memory/linet.h"

#include <algorithm>
#include <array>
#include <bit>

#include "espalier/linet/shape.h"
#include "espalier/train/linet/trainer.h"
#include "espalier/train/memory/step_tape.h"
#include "espalier/train/population/setup.h"

namespace espalier::train {
namespace {

int64_t halved(int64_t size) {
  return (size + 1) / 2;
}

// Goes over the layers as the network does, and adds up what they have and what they keep.
class LinetWalk {
 public:
  explicit LinetWalk(const LinetNeeds& needs)
      : options_(needs.options),
        shape_(linet_shape(needs.options, needs.fields, needs.num_classes, needs.device)),
        item_(static_cast<int64_t>(c10::elementSize(precision_type(needs.options.precision, needs.device)))),
        streams_(shape_.num_streams()) {
    const data::FieldSpec& first = needs.fields[stream_fields(options_, needs.fields).front()];
    height_ = first.height;
    width_ = first.width;
    stem();
    for (size_t stage = 0; stage < shape_.stages.size(); ++stage)
      for (int64_t i = 0; i < shape_.stages[stage]; ++i) block(stage, i == 0 && stage > 0 ? 2 : 1);
    parameter(1, shape_.num_classes * shape_.num_features(), false);
    parameter(1, shape_.num_classes, false);
    if (options_.monitor) {
      parameter(streams_, shape_.num_classes * shape_.num_features(), false);
      parameter(streams_, shape_.num_classes, false);
    }
    // What the last block gives is kept by its own norm, to find the ReLU again.
    tape_.add({.held = {stack(values())}});
    evaluated_.add({.held = {stack(values())}});
  }

  int64_t weight_bytes() const { return weights_ + buffers_; }
  int64_t optimizer_bytes() const {
    const bool is_sgd = options_.optimizer == OptimizerKind::kSgd;
    const int64_t kinds = !is_sgd ? 2 : options_.momentum > 0 ? 1 : 0;
    // The monitors' heads are trained by AdamW whatever the network is trained by.
    const int64_t heads = options_.monitor ? monitor_state() : 0;
    return kinds * network_masters() + 2 * heads + lane_state(is_sgd);
  }
  int64_t stream_bytes() const { return stream_values_ * kMasterBytes; }
  // The flat copies that GradientExchange sends: of all gradients, and of the running statistics unless norms
  // are synced.
  int64_t exchange_bytes() const {
    return (exchanged_values_ + (options_.sync_norm ? 0 : statistics_)) * kMasterBytes;
  }
  int64_t state_bytes() const { return masters_ + buffers_ + optimizer_bytes(); }

  CachedBlocks blocks() const {
    CachedBlocks blocks;
    tape_.train(blocks);
    evaluated_.evaluate(blocks);
    return blocks;
  }

 private:
  int64_t paths() const { return streams_ + 1; }
  int64_t values() const { return channels_ * height_ * width_; }
  // Activations of all paths.
  int64_t stack(int64_t values) const { return stacked_bytes(paths(), {options_.batch, values}, item_); }
  // Raw responses of the streams in fp32.
  int64_t wide_bytes(int64_t values) const {
    return bounded_bytes({streams_, options_.batch, values, kMasterBytes});
  }

  // Returns the bytes of its gradient.
  int64_t parameter(int64_t lanes, int64_t values, bool has_copy) {
    const int64_t master = stacked_bytes(lanes, {values}, kMasterBytes);
    exchanged_values_ += lanes * values;
    masters_ += master;
    weights_ += 2 * master;
    if (has_copy && item_ < kMasterBytes) weights_ += stacked_bytes(lanes, {values}, item_);
    return master;
  }

  int64_t monitor_state() const {
    return stacked_bytes(streams_, {shape_.num_classes, shape_.num_features()}, kMasterBytes) +
           stacked_bytes(streams_, {shape_.num_classes}, kMasterBytes);
  }
  int64_t network_masters() const { return masters_ - (options_.monitor ? monitor_state() : 0); }

  // Rates, decay, what is frozen, SGD's momentum and AdamW's powers, for every lane of every group: of the
  // streams, their first layers, the mixing, the integrated path and the norms; and of the heads.
  int64_t lane_state(bool is_sgd) const {
    const int64_t lanes = 4 * streams_ + 2, heads = options_.monitor ? streams_ : 0;
    const int64_t plain = kMasterBytes + 8 + 1, sgd = plain + 8,
                  adam = plain + 2 * stacked_bytes(1, {1}, sizeof(double));
    return lanes * (is_sgd ? sgd : adam) + heads * adam;
  }

  // A layer's parameters; returns the bytes of their gradients.
  std::vector<int64_t> layer_parameters(int64_t channels, int64_t filters, int64_t kernel) {
    std::vector<int64_t> gradients;
    if (channels > 0) {
      gradients.push_back(parameter(streams_, filters * channels * kernel * kernel, true));
      stream_values_ += streams_ * filters * channels * kernel * kernel;
      gradients.push_back(parameter(1, filters * channels, true));
    } else {
      for (const int64_t own : shape_.in_channels) {
        gradients.push_back(parameter(1, filters * own * kernel * kernel, true));
        stream_values_ += filters * own * kernel * kernel;
      }
    }
    gradients.push_back(parameter(streams_, filters * filters, true));
    stream_values_ += streams_ * 4 * filters;  // the norm's: weight, bias, running mean and variance
    for (int i = 0; i < 2; ++i) {
      gradients.push_back(parameter(paths(), filters, false));
      buffers_ += stacked_bytes(paths(), {filters}, kMasterBytes);
      statistics_ += paths() * filters;
    }
    return gradients;
  }

  // A node with raw responses: an evaluation looks at them in fp32, to see what streams give; so does the
  // loss that balances them, which keeps that.
  void add_raw(StepTape::Node node, int64_t values, bool balanced) {
    StepTape::Node evaluated = node;
    evaluated.forward.push_back(wide_bytes(values));
    evaluated_.add(std::move(evaluated));
    if (balanced) node.held.push_back(wide_bytes(values));
    tape_.add(std::move(node));
  }
  void add(const StepTape::Node& node) {
    tape_.add(node);
    evaluated_.add(node);
  }

  // Whether the loss that balances streams looks at the layer: it then keeps the raw responses in fp32.
  bool is_balanced(BalanceLayer layer) const {
    return options_.balance > 0 &&
           (options_.balance_layer == BalanceLayer::kAll || options_.balance_layer == layer);
  }
  bool is_balanced(size_t stage) const {
    constexpr std::array kLayers{BalanceLayer::kLayer1, BalanceLayer::kLayer2, BalanceLayer::kLayer3,
                                 BalanceLayer::kLayer4};
    return is_balanced(kLayers[stage]);
  }

  void stem() {
    height_ = halved(height_);
    width_ = halved(width_);
    channels_ = shape_.widths.front();
    const int64_t raw = values();
    const std::vector<int64_t> gradients = layer_parameters(/*channels=*/0, channels_, 7);
    const bool balanced = is_balanced(BalanceLayer::kConv1);
    add({.parameters = gradients});
    height_ = halved(height_);
    width_ = halved(width_);
    // Kept besides: where the largest of each window was, and its value.
    add_raw({.held = {stack(raw), stack(values()), bounded_bytes({paths(), options_.batch, values()})},
             .gradient = stack(raw)},
            raw, balanced);
  }

  struct Layer {
    int64_t filters = 0;
    int64_t kernel = 1;
    int64_t stride = 1;
  };

  void block(size_t stage, int64_t stride) {
    const int64_t inner = shape_.widths[stage], out = inner * linet::expansion(shape_.block);
    const std::vector<Layer> layers =
        shape_.block == linet::BlockKind::kBasic
            ? std::vector<Layer>{{inner, 3, stride}, {inner, 3, 1}}
            : std::vector<Layer>{{inner, 1, 1}, {inner, 3, stride}, {out, 1, 1}};
    const int64_t channels = channels_, height = height_, width = width_, in = values();
    const bool has_shortcut = stride != 1 || channels != out;
    const int64_t after =
        out * (stride == 1 ? height : halved(height)) * (stride == 1 ? width : halved(width));
    // The gradient that waits, past the last norm, for that of the layers to be added.
    const int64_t waits = stack(has_shortcut ? after : in);
    for (size_t i = 0; i < layers.size(); ++i) {
      const bool is_last = i + 1 == layers.size();
      if (is_last && has_shortcut) {  // it runs before the last layer
        add_raw({.held = {stack(after)},
                 .forward = {stack(after)},
                 .backward = {stack(after), stack(in)},
                 .parameters = layer_parameters(channels, out, 1)},
                after, is_balanced(stage));
      }
      const int64_t before = values();
      add({.held = {stack(before)},
           .gradient = stack(before),
           .backward = {waits},
           .parameters = layer_parameters(channels_, layers[i].filters, layers[i].kernel)});
      channels_ = layers[i].filters;
      if (layers[i].stride == 2) {
        height_ = halved(height_);
        width_ = halved(width_);
      }
      const int64_t raw = values();
      add_raw({.held = {stack(raw)},
               .forward = {is_last ? stack(after) : 0},
               .gradient = stack(raw),
               .backward = {waits}},
              raw, is_balanced(stage));
    }
  }

  const LinetConfig& options_;
  linet::LinetShape shape_;
  int64_t item_;
  int64_t streams_;
  int64_t channels_ = 0, height_ = 0, width_ = 0;  // where the walk is
  int64_t masters_ = 0;                            // for all parameters
  int64_t weights_ = 0;                            // masters, gradients and copies
  int64_t buffers_ = 0;                            // running statistics
  int64_t exchanged_values_ = 0;                   // of all parameters
  int64_t statistics_ = 0;                         // values of the buffers
  int64_t stream_values_ = 0;                      // parameters and statistics that are a stream's own
  StepTape tape_;                                  // while training
  StepTape evaluated_;                             // in an evaluation
};

}  // namespace

MemoryPlan linet_parts(const LinetNeeds& needs) {
  const LinetWalk walk(needs);
  const LinetConfig& options = needs.options;
  BatchNeeds batches{.residency = needs.data.residency,
                     .device = needs.device,
                     .batch = options.batch,
                     .type = precision_type(options.precision, needs.device)};
  for (const size_t field : stream_fields(options, needs.fields)) {
    const data::FieldSpec& spec = needs.fields[field];
    batches.image_sizes.push_back({spec.channels, spec.height, spec.width});
  }
  MemoryPlan plan = data_parts(needs.data);
  plan.add(batch_parts("training", batches));
  plan.add(batch_parts("validation", batches));
  plan.add("weights and gradients", walk.weight_bytes());
  plan.add("optimiser", walk.optimizer_bytes());
  if (options.stream_patience > 0 && options.rules == linet::LinetRules::kOriginal)
    plan.add("the best weights of every stream", walk.stream_bytes());
  if (needs.ranks > 1) plan.add("gradients on their way to other ranks", walk.exchange_bytes());
  const CachedBlocks blocks = walk.blocks();
  plan.add(step_parts("a step",
                      {.device = needs.device,
                       .peak_bytes = blocks.peak_bytes(),
                       .graph_bytes = blocks.reserved_bytes(),
                       .graphs = options.graphs && needs.ranks == 1,
                       .num_graphs = 2,
                       .has_products = true,
                       .times_products = !options.deterministic && c10::elementSize(batches.type) == 2}));
  plan.add(device_parts(needs.device));
  // torch's pinned memory comes in powers of two.
  if (!needs.device.is_cpu())
    plan.add("a checkpoint on its way to the disk",
             static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(walk.state_bytes()))),
             MemoryPlace::kHost);
  return plan;
}

}  // namespace espalier::train
