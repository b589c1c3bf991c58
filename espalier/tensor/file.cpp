#include "espalier/tensor/file.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "espalier/core/error.h"
#include "espalier/core/files/mapped.h"
#include "espalier/core/files/safetensors_writer.h"

namespace espalier {
namespace {

struct TypePair {
  StoredType stored;
  at::ScalarType type;
};

constexpr std::array kTypes = {
    TypePair{StoredType::kBool, at::kBool}, TypePair{StoredType::kU8, at::kByte},
    TypePair{StoredType::kI8, at::kChar},   TypePair{StoredType::kI16, at::kShort},
    TypePair{StoredType::kI32, at::kInt},   TypePair{StoredType::kI64, at::kLong},
    TypePair{StoredType::kF16, at::kHalf},  TypePair{StoredType::kBF16, at::kBFloat16},
    TypePair{StoredType::kF32, at::kFloat}, TypePair{StoredType::kF64, at::kDouble},
};

}  // namespace

StoredType stored_type(const std::string& name, at::ScalarType type) {
  const auto found = std::ranges::find(kTypes, type, &TypePair::type);
  if (found == kTypes.end()) fail("tensor '{}': safetensors has no type for {}", name, c10::toString(type));
  return found->stored;
}

at::ScalarType torch_type(const TensorSpec& spec) {
  const auto found = std::ranges::find(kTypes, spec.type, &TypePair::stored);
  if (found == kTypes.end()) fail("tensor '{}': torch has no type {}", spec.name, name_of(spec.type));
  return found->type;
}

void write_tensors(const std::string& path, const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                   const Metadata& metadata) {
  std::vector<std::pair<std::string, at::Tensor>> sorted = tensors;
  // Wider types first, so that all are aligned.
  std::ranges::stable_sort(sorted, std::ranges::greater(), [](const auto& named) {
    return static_cast<int64_t>(named.second.element_size());
  });
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : sorted)
    specs.push_back({name, stored_type(name, tensor.scalar_type()), tensor.sizes().vec()});
  SafetensorsWriter writer(path, specs, metadata);
  for (const auto& [name, tensor] : sorted) {
    // In the order of its axes, which is what a reader expects: the one place where memory order is given up.
    const at::Tensor host = tensor.detach().to(at::kCPU).contiguous(c10::MemoryFormat::Contiguous);
    writer.write(std::as_bytes(
        std::span(static_cast<const char*>(host.const_data_ptr()), static_cast<size_t>(host.nbytes()))));
  }
  writer.commit();
}

const at::Tensor& TensorFile::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end()) fail("'{}': has no tensor '{}'", path, name);
  return found->second;
}

TensorFile read_tensors(const std::string& path) {
  const MappedFile file = map_file(path);
  const SafetensorsHeader header = parse_safetensors(file.bytes(), path);
  TensorFile read{.path = path, .metadata = header.metadata};
  for (const TensorEntry& entry : header.tensors) {
    const auto found = std::ranges::find(kTypes, entry.type, &TypePair::stored);
    if (found == kTypes.end())
      fail("'{}': tensor '{}' has type {}, which cannot be read", path, entry.name, name_of(entry.type));
    const at::Tensor tensor = at::empty(entry.shape, at::TensorOptions(found->type));
    if (entry.length_bytes > 0)
      std::memcpy(tensor.mutable_data_ptr(), file.bytes().data() + entry.offset_bytes,
                  static_cast<size_t>(entry.length_bytes));
    read.tensors.emplace(entry.name, tensor);
  }
  return read;
}

}  // namespace espalier
