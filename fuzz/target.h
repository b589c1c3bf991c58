// What every target holds its reader to.
//
// A reader of outside bytes returns or throws espalier::Error; any other exception, crash, leak, undefined
// behaviour, allocation over the limit or second of silence ends the program, and libFuzzer keeps the input.
// The text of an Error is one line of bounded length, whatever the bytes were: it goes to a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include "espalier/core/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace espalier::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}

inline std::span<const std::byte> bytes_of(const uint8_t* data, size_t size) {
  return std::as_bytes(std::span(data, size));
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

inline void check_message(std::string_view message) {
  constexpr size_t kLongest = 2000;
  require(!message.empty() && message.size() <= kLongest, "an error has a text of at most 2000 bytes");
  for (const char c : message) {
    if (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) continue;
    std::fprintf(stderr, "fuzz: control character in: %.*s\n", static_cast<int>(message.size()),
                 message.data());
    std::abort();
  }
}

// True where `body` returned.
template <class Body>
bool reads(const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    check_message(error.what());
    return false;
  }
}

}  // namespace espalier::fuzz
