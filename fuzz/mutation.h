// For targets whose format seals its content (a length, a checksum, compression): their mutator opens the
// seal, lets libFuzzer change what is inside, and seals it again. One time in eight the raw bytes are changed
// instead, so that broken seals are tried too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);

namespace espalier::fuzz {

inline bool mutates_raw(unsigned seed) {
  return seed % 8 == 0;
}

inline void mutate(std::string& text, size_t max_size) {
  if (max_size == 0) return;
  const size_t size = text.size() < max_size ? text.size() : max_size;
  text.resize(max_size);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, max_size));
}

// The new size; 0 where `text` does not fit.
inline size_t store(const std::string& text, uint8_t* data, size_t max_size) {
  if (text.size() > max_size) return 0;
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

}  // namespace espalier::fuzz
