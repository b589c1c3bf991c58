// The types of values that a safetensors file may hold.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace espalier {

enum class StoredType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

int64_t bytes_of(StoredType type);
// As the format spells it: "BF16".
const char* name_of(StoredType type);
// The type of that spelling, if there is one.
std::optional<StoredType> stored_type_named(std::string_view name);

}  // namespace espalier
