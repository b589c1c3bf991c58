#include "espalier/core/files/stored_type.h"

#include <array>
#include <cstddef>

namespace espalier {
namespace {

struct TypeRow {
  StoredType type;
  const char* name;
  int64_t bytes;
};

constexpr std::array kTypes{
    TypeRow{StoredType::kBool, "BOOL", 1},      TypeRow{StoredType::kU8, "U8", 1},
    TypeRow{StoredType::kI8, "I8", 1},          TypeRow{StoredType::kF8E4M3, "F8_E4M3", 1},
    TypeRow{StoredType::kF8E5M2, "F8_E5M2", 1}, TypeRow{StoredType::kI16, "I16", 2},
    TypeRow{StoredType::kU16, "U16", 2},        TypeRow{StoredType::kF16, "F16", 2},
    TypeRow{StoredType::kBF16, "BF16", 2},      TypeRow{StoredType::kI32, "I32", 4},
    TypeRow{StoredType::kU32, "U32", 4},        TypeRow{StoredType::kF32, "F32", 4},
    TypeRow{StoredType::kI64, "I64", 8},        TypeRow{StoredType::kU64, "U64", 8},
    TypeRow{StoredType::kF64, "F64", 8},
};

constexpr bool rows_follow_the_enum() {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<size_t>(kTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum(), "kTypes is indexed by StoredType");

}  // namespace

int64_t bytes_of(StoredType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

const char* name_of(StoredType type) {
  return kTypes[static_cast<size_t>(type)].name;
}

std::optional<StoredType> stored_type_named(std::string_view name) {
  for (const auto& row : kTypes) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

}  // namespace espalier
