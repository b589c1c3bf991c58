// espalier/lanes/mma.cuh for emulated kernels: the same functions, by the layouts of fragments that PTX gives
// (ISA 8.5, sections on mma.m16n8k8, mma.m16n8k16 and ldmatrix).
#pragma once

#include "tests/emulation/emulator.h"

namespace espalier::lanes {

inline uint32_t shared_address(const void* pointer) {
  return emulate::shared_address(pointer);
}

inline void copy_chunk(void* shared, const void* global, bool valid) {
  emulate::begin_copy(shared, valid ? global : nullptr, 16);
}
inline void commit_copies() {
  emulate::commit_copies();
}
template <int kPending>
inline void wait_copies() {
  emulate::wait_copies(kPending);
}

namespace emulated {

constexpr uint32_t kAll = 0xffffffffu;

inline int lane() {
  return emulate::self().index % emulate::kWarp;
}

// Matrix i has its rows at the addresses of lanes 8 i to 8 i + 7. Lane l gets two values of each: of row l /
// 4, or of column l / 4 where it is transposed.
template <int kCount>
void load(uint32_t (&to)[kCount], uint32_t address, bool is_transposed) {
  const emulate::FromWarp<uint32_t> rows(kAll, address);
  const int outer = lane() / 4, inner = lane() % 4 * 2;
  const auto value = [&](int matrix, int row, int column) {
    uint16_t read;
    std::memcpy(&read, emulate::at_shared_address(rows[matrix * 8 + row]) + column * 2, 2);
    return static_cast<uint32_t>(read);
  };
  for (int i = 0; i < kCount; ++i)
    to[i] = is_transposed ? value(i, inner, outer) | value(i, inner + 1, outer) << 16
                          : value(i, outer, inner) | value(i, outer, inner + 1) << 16;
  __syncwarp();
}

template <class T>
float value_in(uint32_t word, int half) {
  const auto bits = static_cast<uint16_t>(word >> 16 * half);
  T value;
  std::memcpy(&value, &bits, 2);
  return static_cast<float>(value);
}

// kWords: of the first factor, two for every eight values of a sum. Lane l has the sums of rows l / 4 and
// l / 4 + 8 and of columns l % 4 * 2 and the next; the factors of a row or column are with four lanes, two
// consecutive ones each.
template <class T, int kWords>
void multiply_add(float (&sum)[4], const uint32_t (&a)[kWords], const uint32_t (&b)[kWords / 2]) {
  constexpr int kLong = kWords * 4;
  struct Factors {
    uint32_t a[kWords], b[kWords / 2];
  } own;
  std::memcpy(own.a, a, sizeof(a));
  std::memcpy(own.b, b, sizeof(b));
  const emulate::FromWarp<Factors> all(kAll, own);
  const int lane = emulated::lane();
  float rows[2][kLong], columns[2][kLong];
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < kLong; ++k) {
      const int quarter = k % 8 / 2;
      rows[i][k] = value_in<T>(all[lane / 4 * 4 + quarter].a[k / 8 * 2 + i], k % 2);
      columns[i][k] = value_in<T>(all[(lane % 4 * 2 + i) * 4 + quarter].b[k / 8], k % 2);
    }
  for (int i = 0; i < 4; ++i) {
    float total = 0;
    for (int k = 0; k < kLong; ++k) total += rows[i / 2][k] * columns[i % 2][k];
    sum[i] += total;
  }
}

}  // namespace emulated

inline void load_matrices(uint32_t (&to)[4], uint32_t address) {
  emulated::load(to, address, /*is_transposed=*/false);
}
inline void load_matrices_transposed(uint32_t (&to)[4], uint32_t address) {
  emulated::load(to, address, /*is_transposed=*/true);
}
inline void load_two_matrices(uint32_t (&to)[2], uint32_t address) {
  emulated::load(to, address, /*is_transposed=*/false);
}
inline void load_two_matrices_transposed(uint32_t (&to)[2], uint32_t address) {
  emulated::load(to, address, /*is_transposed=*/true);
}

template <class T>
void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  emulated::multiply_add<T, 4>(sum, a, {b0, b1});
}
template <class T>
void multiply_add_half(float (&sum)[4], const uint32_t (&a)[2], uint32_t b) {
  emulated::multiply_add<T, 2>(sum, a, {b});
}

template <class T>
uint32_t pack(float low, float high) {
  const T both[2] = {T(low), T(high)};
  uint32_t word;
  std::memcpy(&word, both, 4);
  return word;
}

}  // namespace espalier::lanes
