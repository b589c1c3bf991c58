// Plain values as bytes, one after another, for messages between processes of one program on machines of one
// kind: no names, no versions, no byte order. One function visits what a message holds, for both directions:
//
//   template <class Stream>
//   void visit(Stream& stream, Point& point) { stream.plain(point.x); stream.list(point.values); }
//
// Kept true: reading past the end is an error, never a wild read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "espalier/core/error.h"

namespace espalier {

class ByteWriter {
 public:
  static constexpr bool kReads = false;

  template <class T>
  void plain(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(std::as_bytes(std::span(&value, 1)));
  }
  template <class T>
  void maybe(const std::optional<T>& value) {
    plain(value.has_value());
    if (value) plain(*value);
  }
  // A list of plain values.
  template <class T>
  void list(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    plain(static_cast<uint64_t>(values.size()));
    put(std::as_bytes(std::span(values)));
  }
  void text(const std::string& value) {
    plain(static_cast<uint64_t>(value.size()));
    put(std::as_bytes(std::span(value.data(), value.size())));
  }
  // A list of whatever `visit` takes.
  template <class T, class Visit>
  void each(std::vector<T>& values, const Visit& visit) {
    plain(static_cast<uint64_t>(values.size()));
    for (T& value : values) visit(value);
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void put(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }

  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  static constexpr bool kReads = true;

  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  void plain(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
  }
  template <class T>
  void maybe(std::optional<T>& value) {
    bool has_value = false;
    plain(has_value);
    value.reset();
    if (has_value) plain(value.emplace());
  }
  template <class T>
  void list(std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    values.resize(length(sizeof(T)));
    const std::span<const std::byte> from = take(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), from.data(), from.size());
  }
  void text(std::string& value) {
    const std::span<const std::byte> from = take(length(1));
    value.assign(reinterpret_cast<const char*>(from.data()), from.size());
  }
  template <class T, class Visit>
  void each(std::vector<T>& values, const Visit& visit) {
    values.clear();
    values.resize(length(1));  // each takes a byte at least
    for (T& value : values) visit(value);
  }

  bool is_at_end() const { return bytes_.empty(); }
  std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> take(size_t count) {
    if (count > bytes_.size())
      fail("a message between ranks is cut short: want {} more bytes, got {}", count, bytes_.size());
    const std::span<const std::byte> taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  size_t length(size_t element_bytes) {
    uint64_t count = 0;
    plain(count);
    if (count > bytes_.size() / element_bytes)
      fail("a message between ranks is damaged: {} values of {} bytes in {}", count, element_bytes,
           bytes_.size());
    return static_cast<size_t>(count);
  }

  std::span<const std::byte> bytes_;
};

}  // namespace espalier
