// Reads the members of a .tar.gz archive in order, as a stream: nothing is unpacked to disk.
//
// Kept true: every header's checksum holds before any of its numbers is used; no size read from the archive
// leads to an allocation; at most kMaxTotalBytes are inflated; after the last member the gzip stream is read
// to its end, so its CRC and length have been verified when next() says there is no more. Understood: v7,
// ustar, GNU long names and pax path and size. Directories, links and devices are passed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace espalier::data {

// Fills up to out.size() bytes and returns how many; 0 only at the end.
using ReadSome = std::function<size_t(std::span<std::byte> out)>;

// Reads from memory, which must outlive it.
ReadSome read_from(std::span<const std::byte> bytes);

struct TarMember {
  std::string name;  // as stored, directories included; never used as a path to write to
  int64_t size_bytes = 0;
};

class TarGzReader {
 public:
  // 4 GiB: twenty times the largest CIFAR archive, and a bound on what a hostile one can cost.
  static constexpr int64_t kMaxTotalBytes = int64_t{1} << 32;

  // `file` is the name that errors give.
  TarGzReader(ReadSome source, std::string file);
  ~TarGzReader();
  TarGzReader(const TarGzReader&) = delete;
  TarGzReader& operator=(const TarGzReader&) = delete;

  // The next regular file, whose unread rest is passed over by the next call; nothing at the archive's end.
  std::optional<TarMember> next();

  // The next out.size() bytes of the current member; fails where it has fewer left.
  void read(std::span<std::byte> out);

 private:
  struct Inflater;
  struct Header;

  void read_exactly(std::span<std::byte> out, const char* what);
  size_t read_tar(std::span<std::byte> out);
  bool read_header(Header& header);
  std::string read_text(int64_t size_bytes, const char* what);
  void read_pax(std::string_view text, std::string& name, std::optional<int64_t>& size) const;
  void skip(int64_t size_bytes, const char* what);
  void finish();

  std::string file_;
  std::unique_ptr<Inflater> inflater_;
  int64_t position_ = 0;        // in the tar stream
  int64_t member_left_ = 0;     // bytes of the current member not read yet
  int64_t member_padding_ = 0;  // zeros after it, up to a multiple of 512
  bool is_finished_ = false;
};

}  // namespace espalier::data
