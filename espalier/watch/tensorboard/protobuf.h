// The few parts of protobuf's encoding that TensorBoard's events need, written by hand: no code generator.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace espalier::watch {

// A message, field by field in the order of the calls. A value of zero is written too: readers take it as it
// is.
class ProtobufMessage {
 public:
  ProtobufMessage& integer(uint32_t field, int64_t value) {
    key(field, WireType::kVarint);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& real(uint32_t field, double value) {
    key(field, WireType::kFixed64);
    little_endian(std::bit_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& single(uint32_t field, float value) {
    key(field, WireType::kFixed32);
    little_endian(std::bit_cast<uint32_t>(value));
    return *this;
  }
  // Text, bytes, or the bytes of another message.
  ProtobufMessage& bytes(uint32_t field, std::string_view value) {
    key(field, WireType::kLength);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& reals(uint32_t field, std::span<const double> values) {
    key(field, WireType::kLength);
    varint(values.size_bytes());
    for (const double value : values) little_endian(std::bit_cast<uint64_t>(value));
    return *this;
  }

  const std::string& encoded() const { return bytes_; }

 private:
  enum class WireType : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

  void key(uint32_t field, WireType type) { varint(field << 3 | static_cast<uint32_t>(type)); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  template <class Unsigned>
  void little_endian(Unsigned value) {
    for (size_t i = 0; i < sizeof(value); ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }

  std::string bytes_;
};

}  // namespace espalier::watch
