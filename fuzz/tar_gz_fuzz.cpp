// CIFAR archives: .tar.gz, as a stream of members and as a release. Held: a member has the bytes that its
// header states; what was read to its end has been verified. The mutator changes the tar inside the gzip
// stream and mends the checksums of its headers: plain mutation would never get past either.
#include "espalier/data/sources/cifar/tar_gz.h"

#include <algorithm>
#include <array>

#include "espalier/data/sources/cifar/release.h"
#include "fuzz/mutation.h"
#include "fuzz/target.h"
#include "tests/data/sources/cifar_files.h"

namespace {

using namespace espalier;

constexpr size_t kMaxTar = 24 * 1024;

// One batch of one image a split, so that a whole release fits into a small input.
data::CifarFormat smallest_format() {
  data::CifarFormat format = data::testing::tiny_format(10, 1);
  format.batches = {format.batches.front(), format.batches.back()};
  return format;
}

// What of the stream can be inflated, up to kMaxTar.
std::string inflated(const uint8_t* data, size_t size) {
  z_stream stream = {};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) return {};
  std::string out(kMaxTar, '\0');
  stream.next_in = const_cast<Bytef*>(data);  // zlib reads it only
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_SYNC_FLUSH);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

// Every header that the sizes of those before it lead to.
void seal_headers(std::string& tar) {
  size_t at = 0;
  while (at + 512 <= tar.size()) {
    if (tar.find_first_not_of('\0', at) >= at + 512) break;
    data::testing::seal_header(tar, at);
    const size_t body = std::strtoull(tar.substr(at + 124, 12).c_str(), nullptr, 8);
    if (body > tar.size()) break;
    at += 512 + (body + 511) / 512 * 512;
  }
}

}  // namespace

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (fuzz::mutates_raw(seed)) return LLVMFuzzerMutate(data, size, max_size);
  std::string tar = inflated(data, size);
  fuzz::mutate(tar, kMaxTar);
  if (seed % 16 != 1) seal_headers(tar);
  const size_t stored = fuzz::store(data::testing::gzip(tar), data, max_size);
  return stored != 0 ? stored : LLVMFuzzerMutate(data, size, max_size);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::bytes_of(data, size);
  bool is_whole = fuzz::reads([&] {
    data::TarGzReader reader(data::read_from(bytes), "archive");
    std::array<std::byte, 1000> part;
    while (const auto member = reader.next()) {
      // Some are read to their end, some to their middle, as the header of the next must be found after both.
      int64_t left = member->size_bytes % 2 == 0 ? member->size_bytes : member->size_bytes / 2;
      while (left > 0) {
        const auto count = static_cast<size_t>(std::min<int64_t>(left, part.size()));
        reader.read(std::span(part).first(count));
        left -= static_cast<int64_t>(count);
      }
    }
    fuzz::require(!reader.next(), "an archive that has ended stays ended");
  });
  static const data::CifarFormat format = smallest_format();
  const bool is_release = fuzz::reads([&] {
    const data::HostDataset dataset = data::load_cifar_archive(format, data::read_from(bytes), "archive", {});
    data::check_dataset(dataset);
  });
  fuzz::require(is_whole || !is_release, "a damaged archive is no release");
  return 0;
}
