#include "espalier/linet/network.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/lanes/head/pool.h"
#include "espalier/lanes/init.h"
#include "espalier/lanes/stack.h"

namespace espalier::linet {
namespace {

const LinetShape& checked(const LinetShape& shape) {
  check_shape(shape);
  return shape;
}

// [S,B] for the streams, and every sample for the integrated path.
at::Tensor with_integrated(const at::Tensor& keep) {
  const at::Tensor all = at::ones({keep.size(0) + 1, keep.size(1)}, keep.options());
  all.narrow(0, 0, keep.size(0)).copy_(keep);
  return all;
}

}  // namespace

at::Tensor StreamTensor::value() const {
  return (parameter ? parameter->storage() : buffer).select(0, lane);
}

at::Tensor StreamTensor::gradient() const {
  return parameter->gradient().select(0, lane);
}

Linet::Linet(const LinetShape& shape, const at::TensorOptions& tensor_options, at::ScalarType compute)
    : shape_(checked(shape)) {
  const int64_t streams = shape.num_streams();
  stem_ = std::make_unique<LiUnit>(LiConvOptions{.streams = streams,
                                                 .apart = shape.in_channels,
                                                 .filters = shape.widths.front(),
                                                 .kernel_size = 7,
                                                 .stride = 2},
                                   "conv1", "bn1", tensor_options, compute);
  int64_t channels = shape.widths.front();
  for (size_t stage = 0; stage < shape.stages.size(); ++stage)
    for (int64_t i = 0; i < shape.stages[stage]; ++i) {
      blocks_.push_back(
          std::make_unique<LiBlock>(LiBlockOptions{.kind = shape.block,
                                                   .streams = streams,
                                                   .in_channels = channels,
                                                   .width = shape.widths[stage],
                                                   .stride = i == 0 && stage > 0 ? 2 : 1,
                                                   .name = fmt::format("layer{}.{}", stage + 1, i)},
                                    tensor_options, compute));
      channels = shape.widths[stage] * expansion(shape.block);
    }
  classifier_ = std::make_unique<lanes::LaneLinear>(
      lanes::LaneLinearOptions{.in_features = channels, .out_features = shape.num_classes}, tensor_options);
  num_batches_ = at::zeros({1}, tensor_options.dtype(at::kLong));
  for (int64_t i = 0; i < streams; ++i)
    entries_.emplace_back(fmt::format("linet: stream {}", i), shape.memory_format, compute,
                          tensor_options.device());
  for (const lanes::NamedParameter& named : parameters()) named.parameter->set_format(shape.memory_format);
  initialise(shape.seed);
}

at::Tensor Linet::enter(int64_t stream, const at::Tensor& x) {
  const auto i = static_cast<size_t>(stream);
  return entries_[i].enter(x, {shape_.in_channels[i], -1, -1}, /*lanes=*/1);
}

void Linet::check_training(const LinetShape& shape, int64_t batch, int64_t height, int64_t width,
                           std::string_view flag) {
  // The stem's convolution and its pool halve the image, and so does every stage but the first; the last
  // norms see the fewest values.
  for (size_t halving = 0; halving < shape.stages.size() + 1; ++halving) {
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
  if (batch * height * width == 1)
    fail_usage(
        "{} {}: the norms of stage {} would see a single value per channel, which cannot be trained on: its "
        "images are 1 x 1; use at least 2, or larger images",
        flag, batch, shape.stages.size());
}

LinetOutput Linet::forward(at::TensorList x, const LinetContext& context) {
  if (static_cast<int64_t>(x.size()) != num_streams())
    fail_usage("linet: want one input for each of {} streams, got {}", num_streams(), x.size());
  std::vector<at::Tensor> inputs;
  for (int64_t i = 0; i < num_streams(); ++i) {
    const at::Tensor in = enter(i, x[static_cast<size_t>(i)]);
    inputs.push_back(
        context.keep.defined() ? at::where(context.keep.select(0, i).view({1, -1, 1, 1, 1}), in, 0) : in);
  }
  PathContext path{.mode = context.mode,
                   .contributions = context.contributions,
                   .contributions_of = context.contributions_of,
                   .sum_over_all = context.sum_over_all,
                   .fallbacks = context.fallbacks};
  if (context.keep.defined()) path.keep = with_integrated(context.keep);
  if (context.mode == lanes::Mode::kTrain) num_batches_.add_(1);

  at::Tensor h = stem_->forward(inputs, path, lanes::Activation::kRelu, lanes::Pooling::k3x3);
  for (const auto& block : blocks_) h = block->forward(h, path);
  RECORD_USER_SCOPE("fc");
  const at::Tensor features = lanes::lane_global_average_pool(h);
  at::Tensor read = features.narrow(0, num_streams(), 1);
  if (context.dropout.defined()) read = read * context.dropout;
  return {.logits = classifier_->forward(read), .features = features};
}

at::Tensor Linet::forward_stream(int64_t stream, const at::Tensor& x, lanes::Mode mode) {
  if (stream < 0 || stream >= num_streams())
    fail_usage("linet: stream: want 0 to {}, got {}", num_streams() - 1, stream);
  at::Tensor h = stem_->forward_stream(stream, enter(stream, x), {}, lanes::Activation::kRelu, mode,
                                       lanes::Pooling::k3x3);
  for (const auto& block : blocks_) h = block->forward_stream(stream, h, mode);
  return lanes::lane_global_average_pool(h);
}

std::vector<LiUnit*> Linet::units() {
  std::vector<LiUnit*> all{stem_.get()};
  for (const auto& block : blocks_)
    for (LiUnit* unit : block->units()) all.push_back(unit);
  return all;
}

std::vector<lanes::NamedParameter> Linet::parameters() {
  std::vector<lanes::NamedParameter> named;
  for (LiUnit* unit : units()) {
    LiConv& conv = unit->conv;
    for (size_t i = 0; i < conv.weight.size(); ++i)
      named.push_back({unit->conv_name + (conv.weight.size() == 1 ? ".weight" : fmt::format(".weight.{}", i)),
                       &conv.weight[i]});
    named.push_back({unit->conv_name + ".mix", &conv.mix});
    if (conv.previous.defined()) named.push_back({unit->conv_name + ".previous", &conv.previous});
    lanes::append_parameters(named, unit->norm_name + ".", unit->norm.parameters());
  }
  lanes::append_parameters(named, "fc.", classifier_->parameters());
  return named;
}

std::vector<PathGroup> Linet::groups() {
  const int64_t streams = num_streams();
  std::vector<int64_t> each(static_cast<size_t>(streams)), all(static_cast<size_t>(streams) + 1);
  std::iota(each.begin(), each.end(), 0);
  std::iota(all.begin(), all.end(), 0);
  const std::vector<int64_t> integrated{streams}, mixing(static_cast<size_t>(streams), streams);
  std::map<std::vector<int64_t>, std::vector<lanes::LaneParameter*>> by_paths;
  for (LiUnit* unit : units()) {
    LiConv& conv = unit->conv;
    for (size_t i = 0; i < conv.weight.size(); ++i)
      by_paths[conv.has_previous() ? each : std::vector<int64_t>{static_cast<int64_t>(i)}].push_back(
          &conv.weight[i]);
    by_paths[mixing].push_back(&conv.mix);
    if (conv.has_previous()) by_paths[integrated].push_back(&conv.previous);
    for (lanes::LaneParameter* parameter : {&unit->norm.weight, &unit->norm.bias})
      by_paths[all].push_back(parameter);
  }
  for (const lanes::NamedParameter& named : classifier_->parameters())
    by_paths[integrated].push_back(named.parameter);
  std::vector<PathGroup> made;
  for (auto& [paths, parameters] : by_paths) made.push_back({std::move(parameters), paths});
  return made;
}

std::vector<std::pair<std::string, at::Tensor>> Linet::named_buffers() {
  std::vector<std::pair<std::string, at::Tensor>> all{{"num_batches", num_batches_}};
  for (LiUnit* unit : units()) {
    all.emplace_back(unit->norm_name + ".running_mean", unit->norm.running_mean);
    all.emplace_back(unit->norm_name + ".running_var", unit->norm.running_var);
  }
  return all;
}

std::vector<StreamTensor> Linet::stream_tensors() {
  std::vector<StreamTensor> all;
  const int64_t streams = num_streams();
  const auto path_name = [&](int64_t path) {
    return path == streams ? std::string("integrated") : fmt::format("streams.{}", path);
  };
  for (LiUnit* unit : units()) {
    LiConv& conv = unit->conv;
    const bool is_apart = !conv.has_previous();
    for (int64_t i = 0; i < streams; ++i)
      all.push_back({.name = fmt::format("{}.streams.{}.weight", unit->conv_name, i),
                     .parameter = &conv.weight[is_apart ? static_cast<size_t>(i) : 0],
                     .lane = is_apart ? 0 : i});
    for (int64_t i = 0; i < streams; ++i)
      all.push_back(
          {.name = fmt::format("{}.mix.{}.weight", unit->conv_name, i), .parameter = &conv.mix, .lane = i});
    if (conv.has_previous())
      all.push_back({.name = unit->conv_name + ".previous.weight", .parameter = &conv.previous});
    for (int64_t path = 0; path <= streams; ++path) {
      const std::string prefix = fmt::format("{}.{}.", unit->norm_name, path_name(path));
      all.push_back({.name = prefix + "weight", .parameter = &unit->norm.weight, .lane = path});
      all.push_back({.name = prefix + "bias", .parameter = &unit->norm.bias, .lane = path});
      all.push_back({.name = prefix + "running_mean", .buffer = unit->norm.running_mean, .lane = path});
      all.push_back({.name = prefix + "running_var", .buffer = unit->norm.running_var, .lane = path});
      all.push_back({.name = prefix + "num_batches_tracked", .buffer = num_batches_});
    }
  }
  for (const lanes::NamedParameter& named : classifier_->parameters())
    all.push_back({.name = "fc." + named.name, .parameter = named.parameter});
  return all;
}

int64_t Linet::num_parameters() {
  int64_t count = 0;
  for (const lanes::NamedParameter& named : parameters()) count += named.parameter->value().numel();
  return count;
}

void Linet::initialise(uint64_t seed) {
  for (LiUnit* unit : units()) {
    LiConv& conv = unit->conv;
    const std::string weight = unit->conv_name + ".weight", previous = unit->conv_name + ".previous";
    for (size_t i = 0; i < conv.weight.size(); ++i)
      lanes::init_kaiming_uniform_(conv.weight[i].storage(), {seed, weight, static_cast<int64_t>(i)});
    conv.mix.storage().fill_(1 / static_cast<double>(num_streams()));
    if (conv.has_previous()) {
      const at::Tensor& values = conv.previous.storage();
      if (values.size(1) == values.size(2)) {
        lanes::init_orthogonal_(values, {seed, previous});
      } else {
        lanes::init_uniform_(values, 0.1 * lanes::kaiming_bound(values), {seed, previous});
      }
    }
    unit->norm.weight.storage().fill_(1);
    unit->norm.bias.storage().zero_();
    unit->norm.running_mean.zero_();
    unit->norm.running_var.fill_(1);
  }
  lanes::init_kaiming_uniform_(classifier_->weight.storage(), {seed, "fc.weight"});
  lanes::init_uniform_(classifier_->bias.storage(), lanes::kaiming_bound(classifier_->weight.storage()),
                       {seed, "fc.bias"});
  num_batches_.zero_();
  for (const lanes::NamedParameter& named : parameters()) named.parameter->refresh();
}

int64_t Linet::entry_conversions() const {
  int64_t count = 0;
  for (const lanes::LaneEntry& entry : entries_) count += entry.num_conversions();
  return count;
}

}  // namespace espalier::linet
