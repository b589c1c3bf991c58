// Networks in files: stacked, as a checkpoint keeps them, or per stream, as PyTorch loads them.
//
// Kept true: a file that lacks a tensor of the network, or has it in another shape, is refused with what
// differs; the metadata says which network it is.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/files/safetensors.h"
#include "espalier/linet/network.h"
#include "espalier/tensor/file.h"

namespace espalier::linet {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// The network's shape as metadata, and back. Fails naming the file and the key.
Metadata metadata_of(const LinetShape& shape);
LinetShape shape_of(const TensorFile& file);

// Stacked: "layer1.0.conv1.weight" [S,K,C,3,3], ...: parameters, running statistics, the counter. Live.
NamedTensors stacked_tensors(Linet& net);
// tensors: those of a network of this shape, and what goes with it; metadata is added to the shape's.
void write_checkpoint(const std::string& path, const LinetShape& shape, const NamedTensors& tensors,
                      const Metadata& metadata);
void load_checkpoint(const TensorFile& file, Linet& net);

// Per stream: "layer1.0.conv1.streams.2.weight" [K,C,3,3], ..., as a PyTorch module names them.
void write_stream_weights(const std::string& path, Linet& net, const Metadata& metadata);
void load_stream_weights(const TensorFile& file, Linet& net);

}  // namespace espalier::linet
