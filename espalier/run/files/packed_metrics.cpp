#include "espalier/run/files/packed_metrics.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"

namespace espalier::run {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlain = "metrics.jsonl";
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr int kGzip = 15 + 16;  // the largest window, gzip's header

// Ends a stream of zlib, whichever way it went.
struct Stream {
  z_stream state{};
  int (*end)(z_streamp);
  ~Stream() { end(&state); }
};

// All that a file holds, decompressed. Returns whether it is whole.
bool inflate_file(const fs::path& path, const std::function<void(std::string_view)>& piece) {
  std::ifstream file(path, std::ios::binary);
  Stream stream{.end = inflateEnd};
  if (!file || inflateInit2(&stream.state, kGzip) != Z_OK) return false;
  std::vector<char> in(kPieceBytes), out(kPieceBytes);
  int code = Z_OK;
  while (code == Z_OK && file) {
    file.read(in.data(), static_cast<std::streamsize>(in.size()));
    stream.state.next_in = reinterpret_cast<Bytef*>(in.data());
    stream.state.avail_in = static_cast<uInt>(file.gcount());
    while (code == Z_OK && stream.state.avail_in > 0) {
      stream.state.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.state.avail_out = static_cast<uInt>(out.size());
      code = inflate(&stream.state, Z_NO_FLUSH);
      const size_t made = out.size() - stream.state.avail_out;
      if (made > 0) piece({out.data(), made});
    }
  }
  return code == Z_STREAM_END && stream.state.avail_in == 0 &&
         file.peek() == std::ifstream::traits_type::eof();
}

void deflate_file(const fs::path& path, const std::function<void(std::string_view)>& piece) {
  std::ifstream file(path, std::ios::binary);
  Stream stream{.end = deflateEnd};
  constexpr int kMemory = 8;  // zlib's own default
  if (!file ||
      deflateInit2(&stream.state, Z_BEST_COMPRESSION, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY) != Z_OK)
    fail("'{}': cannot be read", path.string());
  std::vector<char> in(kPieceBytes), out(kPieceBytes);
  for (int code = Z_OK; code != Z_STREAM_END;) {
    file.read(in.data(), static_cast<std::streamsize>(in.size()));
    if (file.bad()) fail("'{}': cannot be read to its end", path.string());
    stream.state.next_in = reinterpret_cast<Bytef*>(in.data());
    stream.state.avail_in = static_cast<uInt>(file.gcount());
    do {
      stream.state.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.state.avail_out = static_cast<uInt>(out.size());
      code = deflate(&stream.state, file.eof() ? Z_FINISH : Z_NO_FLUSH);
      piece({out.data(), out.size() - stream.state.avail_out});
    } while (stream.state.avail_out == 0);
  }
}

// Removes the file that was replaced, once the new one is there for good.
void write_whole(const fs::path& path, const fs::path& replaced,
                 const std::function<void(AtomicFile&)>& write) {
  AtomicFile file(path.string());
  write(file);
  file.commit();
  std::error_code code;
  if (!fs::remove(replaced, code)) fail("'{}': cannot be removed: {}", replaced.string(), code.message());
}

}  // namespace

bool is_packed(const fs::path& run) {
  std::error_code ignored;
  return fs::is_regular_file(run / kPackedMetrics, ignored) && !fs::exists(run / kPlain, ignored);
}

int64_t pack_metrics(const fs::path& run) {
  const auto before = static_cast<int64_t>(fs::file_size(run / kPlain));
  write_whole(run / kPackedMetrics, run / kPlain, [&](AtomicFile& file) {
    deflate_file(run / kPlain, [&](std::string_view piece) { file.write(piece); });
  });
  return before - static_cast<int64_t>(fs::file_size(run / kPackedMetrics));
}

void unpack_metrics(const fs::path& run) {
  if (!is_packed(run)) return;
  const fs::path packed = run / kPackedMetrics;
  write_whole(run / kPlain, packed, [&](AtomicFile& file) {
    if (!inflate_file(packed, [&](std::string_view piece) { file.write(piece); }))
      fail("'{}': is damaged: its lines are lost; begin anew with --restart fresh", packed.string());
  });
}

void read_packed(const fs::path& run, const std::function<void(std::string_view)>& piece) {
  inflate_file(run / kPackedMetrics, piece);
}

}  // namespace espalier::run
