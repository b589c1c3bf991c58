#include "espalier/linet/linet_file.h"

#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/list_text.h"

namespace espalier::linet {
namespace {

constexpr const char* kKind = "espalier.linet";

std::vector<int64_t> numbers_of(const lanes::TensorFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  if (found == file.metadata.end())
    fail("'{}': is no network of ours: its metadata has no '{}'", file.path, key);
  std::vector<int64_t> numbers;
  const std::string& text = found->second;
  for (const std::string& part : split_list(text)) {
    int64_t number = 0;
    const char* const end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, number);
    if (error != std::errc() || stop != end)
      fail("'{}': metadata '{}': want integers with commas between, got '{}'", file.path, key, text);
    numbers.push_back(number);
  }
  return numbers;
}

// The stacked tensors: parameters, running statistics, the counter.
NamedTensors stacked_tensors(Linet& net) {
  NamedTensors all;
  for (const lanes::NamedParameter& named : net.parameters())
    all.emplace_back(named.name, named.parameter->storage());
  for (const auto& [name, tensor] : net.named_buffers()) all.emplace_back(name, tensor);
  return all;
}

NamedTensors stream_tensors(Linet& net) {
  NamedTensors all;
  for (const StreamTensor& tensor : net.stream_tensors()) all.emplace_back(tensor.name, tensor.value());
  return all;
}

void load(const lanes::TensorFile& file, const NamedTensors& to, Linet& net) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : to) {
    const at::Tensor& from = file.at(name);
    if (from.sizes() != tensor.sizes())
      fail("'{}': tensor '{}': want the shape {}, got {}", file.path, name, c10::str(tensor.sizes()),
           c10::str(from.sizes()));
  }
  for (const auto& [name, tensor] : to) tensor.copy_(file.at(name));
  for (const lanes::NamedParameter& named : net.parameters()) named.parameter->refresh();
}

Metadata with_shape(const LinetShape& shape, Metadata metadata) {
  metadata.merge(metadata_of(shape));
  return metadata;
}

}  // namespace

Metadata metadata_of(const LinetShape& shape) {
  return {{"kind", kKind},
          {"block", shape.block == BlockKind::kBasic ? "basic" : "bottleneck"},
          {"streams", fmt::format("{}", fmt::join(shape.in_channels, ","))},
          {"stages", fmt::format("{}", fmt::join(shape.stages, ","))},
          {"widths", fmt::format("{}", fmt::join(shape.widths, ","))},
          {"classes", std::to_string(shape.num_classes)}};
}

LinetShape shape_of(const lanes::TensorFile& file) {
  const auto block = file.metadata.find("block");
  if (block == file.metadata.end() || (block->second != "basic" && block->second != "bottleneck"))
    fail("'{}': is no network of ours: its metadata has no 'block' that is basic or bottleneck", file.path);
  LinetShape shape{.in_channels = numbers_of(file, "streams"),
                   .block = block->second == "basic" ? BlockKind::kBasic : BlockKind::kBottleneck,
                   .stages = numbers_of(file, "stages"),
                   .widths = numbers_of(file, "widths"),
                   .num_classes = numbers_of(file, "classes").front()};
  check_shape(shape);
  return shape;
}

void write_checkpoint(const std::string& path, Linet& net, const NamedTensors& more,
                      const Metadata& metadata) {
  NamedTensors all = stacked_tensors(net);
  all.insert(all.end(), more.begin(), more.end());
  lanes::write_tensors(path, all, with_shape(net.shape(), metadata));
}

void load_checkpoint(const lanes::TensorFile& file, Linet& net) {
  load(file, stacked_tensors(net), net);
}

void write_stream_weights(const std::string& path, Linet& net, const Metadata& metadata) {
  lanes::write_tensors(path, stream_tensors(net), with_shape(net.shape(), metadata));
}

void load_stream_weights(const lanes::TensorFile& file, Linet& net) {
  load(file, stream_tensors(net), net);
}

}  // namespace espalier::linet
