// PNG and JPEG files. Held: an image is no larger than a file of that length can hold; decoding writes within
// a buffer of exactly the size that its shape says; so does bringing it to another size. The mutator mends
// the checksums of PNG chunks. (libpng and libjpeg are the system's, without instrumentation: coverage leads
// through our code only, and what they write is seen by the sanitizer only where it leaves a buffer.)
#include "espalier/data/sources/images/decode.h"

#include <zlib.h>

#include <vector>

#include "espalier/data/sources/images/resize.h"
#include "fuzz/mutation.h"
#include "fuzz/target.h"

namespace {

using namespace espalier;

uint32_t big_endian_at(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}

void seal_chunks(uint8_t* data, size_t size) {
  size_t at = 8;
  while (at + 12 <= size) {
    const size_t length = big_endian_at(data + at);
    if (length > size - at - 12) return;
    const auto sum = static_cast<uint32_t>(crc32(0, data + at + 4, static_cast<uInt>(length + 4)));
    for (size_t i = 0; i < 4; ++i) data[at + 8 + length + i] = static_cast<uint8_t>(sum >> (24 - 8 * i));
    at += 12 + length;
  }
}

}  // namespace

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const size_t changed = LLVMFuzzerMutate(data, size, max_size);
  if (!fuzz::mutates_raw(seed) && changed > 8 && data[0] == 0x89) seal_chunks(data, changed);
  return changed;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Larger ones take too long to try many; that they may be read at all is checked before.
  constexpr int64_t kMaxDecodedBytes = int64_t{1} << 22;
  // PNG: 1032 bytes from one, each of them up to eight palette entries of four bytes; rows of under a byte.
  constexpr int64_t kMaxGrowth = 1032 * 8 * 4;
  constexpr int64_t kRoom = int64_t{1} << 22;
  fuzz::reads([&] {
    const auto decoder = data::open_image(fuzz::bytes_of(data, size));
    const data::ImageShape shape = decoder->shape();
    fuzz::require(shape.height >= 1 && shape.width >= 1 && shape.channels >= 1 && shape.channels <= 4,
                  "an image has pixels of one to four values");
    fuzz::require(shape.size_bytes() <= kMaxGrowth * static_cast<int64_t>(size) + kRoom,
                  "an image is no larger than its file can hold");
    if (shape.size_bytes() > kMaxDecodedBytes) return;
    std::vector<std::byte> values(static_cast<size_t>(shape.size_bytes()));
    decoder->decode(values);
    const data::ImageSize target{.height = 3, .width = 5};
    std::vector<std::byte> resized(static_cast<size_t>(15 * shape.channels * data::bytes_of(shape.type)));
    data::resize_into(shape, values, target, resized);
  });
  return 0;
}
