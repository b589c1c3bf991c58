#include "espalier/linet/file.h"

#include <c10/core/GradMode.h>
#include "espalier/core/error.h"
#include "espalier/linet/metadata.h"

namespace espalier::linet {
namespace {

NamedTensors stream_tensors(Linet& net) {
  NamedTensors all;
  for (const StreamTensor& tensor : net.stream_tensors()) all.emplace_back(tensor.name, tensor.value());
  return all;
}

void load(const TensorFile& file, const NamedTensors& to, Linet& net) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : to) {
    const at::Tensor& from = file.at(name);
    if (from.sizes() != tensor.sizes())
      fail("'{}': tensor '{}': want the shape {}, got {}", file.path, name, c10::str(tensor.sizes()),
           c10::str(from.sizes()));
    // Halves and doubles are weights too; numbers of another kind are not, though torch would convert them.
    if (at::isFloatingType(from.scalar_type()) != at::isFloatingType(tensor.scalar_type()))
      fail("'{}': tensor '{}': want {}, got {}", file.path, name, c10::toString(tensor.scalar_type()),
           c10::toString(from.scalar_type()));
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
  return metadata_of(LinetHeader{.streams = shape.in_channels,
                                 .is_bottleneck = shape.block == BlockKind::kBottleneck,
                                 .stages = shape.stages,
                                 .widths = shape.widths,
                                 .num_classes = shape.num_classes});
}

LinetShape shape_of(const TensorFile& file) {
  int64_t values = 0;
  for (const auto& [name, tensor] : file.tensors) values += tensor.numel();
  const LinetHeader header = linet_header(file.metadata, values, file.path);
  LinetShape shape{.in_channels = header.streams,
                   .block = header.is_bottleneck ? BlockKind::kBottleneck : BlockKind::kBasic,
                   .stages = header.stages,
                   .widths = header.widths,
                   .num_classes = header.num_classes};
  check_shape(shape);
  return shape;
}

NamedTensors stacked_tensors(Linet& net) {
  NamedTensors all;
  for (const lanes::NamedParameter& named : net.parameters())
    all.emplace_back(named.name, named.parameter->storage());
  for (const auto& [name, tensor] : net.named_buffers()) all.emplace_back(name, tensor);
  return all;
}

void write_checkpoint(const std::string& path, const LinetShape& shape, const NamedTensors& tensors,
                      const Metadata& metadata) {
  write_tensors(path, tensors, with_shape(shape, metadata));
}

void load_checkpoint(const TensorFile& file, Linet& net) {
  load(file, stacked_tensors(net), net);
}

void write_stream_weights(const std::string& path, Linet& net, const Metadata& metadata) {
  write_tensors(path, stream_tensors(net), with_shape(net.shape(), metadata));
}

void load_stream_weights(const TensorFile& file, Linet& net) {
  load(file, stream_tensors(net), net);
}

}  // namespace espalier::linet
