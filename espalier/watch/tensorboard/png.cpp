#include "espalier/watch/tensorboard/png.h"

#include <zlib.h>

#include <array>
#include <limits>
#include <string_view>

#include "espalier/core/error.h"

namespace espalier::watch {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr std::array<char, 5> kColourTypes{0, 0, 4, 2, 6};  // by the number of channels

void check(const Picture& picture) {
  if (picture.width < 1 || picture.height < 1 || picture.width > std::numeric_limits<int32_t>::max() ||
      picture.height > std::numeric_limits<int32_t>::max() || picture.channels < 1 || picture.channels > 4)
    fail(
        "a picture of {} x {} pixels with {} channels cannot be a PNG: want at least one pixel and 1 to 4 "
        "channels",
        picture.width, picture.height, picture.channels);
  int64_t size_bytes = 0;
  if (__builtin_mul_overflow(picture.width * picture.channels, picture.height, &size_bytes) ||
      static_cast<uint64_t>(size_bytes) != picture.bytes.size())
    fail("a picture of {} x {} pixels with {} channels came with {} bytes: want one per pixel and channel",
         picture.width, picture.height, picture.channels, picture.bytes.size());
}

void append_big_endian(std::string& out, uint64_t value) {
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(value >> shift));
}

void append_chunk(std::string& out, std::string_view type, std::string_view data) {
  // The length is 31 bits wide.
  if (data.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
    fail("a picture of {} compressed bytes cannot be written as a PNG: it allows 2^31 - 1", data.size());
  append_big_endian(out, data.size());
  const size_t begin = out.size();
  out += type;
  out += data;
  append_big_endian(out, crc32_z(0, reinterpret_cast<const Bytef*>(out.data() + begin), out.size() - begin));
}

// Each row with a byte in front that names its filter: none.
std::string rows_of(const Picture& picture) {
  const auto row_bytes = static_cast<size_t>(picture.width * picture.channels);
  std::string rows;
  rows.reserve(picture.bytes.size() + static_cast<size_t>(picture.height));
  for (size_t begin = 0; begin < picture.bytes.size(); begin += row_bytes) {
    rows.push_back(0);
    rows.append(reinterpret_cast<const char*>(picture.bytes.data() + begin), row_bytes);
  }
  return rows;
}

std::string compressed(std::string_view bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  // Quick rather than small: a run writes few pictures, and they must not hold it up.
  const int result = compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), Z_BEST_SPEED);
  if (result != Z_OK) fail("a picture of {} bytes cannot be compressed: {}", bytes.size(), zError(result));
  out.resize(size);
  return out;
}

}  // namespace

std::string png_of(const Picture& picture) {
  check(picture);
  std::string header;
  append_big_endian(header, static_cast<uint64_t>(picture.width));
  append_big_endian(header, static_cast<uint64_t>(picture.height));
  header.push_back(8);  // bits
  header.push_back(kColourTypes[static_cast<size_t>(picture.channels)]);
  header.append(3, '\0');  // the one compression, the one set of filters, not interlaced

  std::string file(kSignature);
  append_chunk(file, "IHDR", header);
  append_chunk(file, "IDAT", compressed(rows_of(picture)));
  append_chunk(file, "IEND", {});
  return file;
}

}  // namespace espalier::watch
