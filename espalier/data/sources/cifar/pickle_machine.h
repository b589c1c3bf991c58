// The stack machine behind pickle.h: turns a pickle's bytes into plain values, or fails.
//
// Values refer to each other by index, so a pickle that makes a list contain itself is harmless: nothing here
// follows references by recursion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::data {

enum class PickleKind : uint8_t {
  kNone,
  kBool,
  kInt,
  kText,    // a str, unicode or bytes
  kGlobal,  // a name; never looked up
  kTuple,
  kList,
  kDict,   // items: key, value, key, value, ...
  kDtype,  // always uint8
  kArray,  // items: shape (a tuple), bytes (a text); empty until BUILD
};

struct PickleValue {
  PickleKind kind = PickleKind::kNone;
  int64_t integer = 0;              // kBool, kInt; of an array: 1 where it is column-major
  std::span<const std::byte> text;  // kText, kGlobal ("module name"); in the pickle or in Pickle::decoded
  std::vector<uint32_t> items;      // indices into Pickle::values

  bool is_text(std::string_view expected) const;
};

struct Pickle {
  std::vector<PickleValue> values;
  std::deque<std::vector<std::byte>> decoded;  // texts that had to be decoded; their storage never moves
  uint32_t root = 0;
};

std::string_view as_string(std::span<const std::byte> bytes);

// `file` is the name that errors give; `bytes` must outlive the result.
Pickle read_pickle(std::span<const std::byte> bytes, const std::string& file);

}  // namespace espalier::data
