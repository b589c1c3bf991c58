// Named tensors in a safetensors file, for whoever reads it: shapes in torch's order of axes, values
// row-major, so that Python loads them as they are.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/files/safetensors.h"

namespace espalier {

// Appears under its name as a whole or not at all. Tensors of any device and strides.
void write_tensors(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                   const Metadata& metadata);

struct TensorFile {
  std::string path;
  std::map<std::string, at::Tensor> tensors;  // on the CPU
  Metadata metadata;

  // Fails naming the file and the tensor where it is not there.
  const at::Tensor& at(const std::string& name) const;
};

// The type as either side calls it; fails, naming the tensor, where the other has none.
StoredType stored_type(const std::string& name, at::ScalarType type);
at::ScalarType torch_type(const TensorSpec& spec);

// Fails with one sentence for a file that is damaged, or holds a type that torch does not have.
TensorFile read_tensors(const std::string& path);

}  // namespace espalier
