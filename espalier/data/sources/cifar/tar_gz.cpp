#include "espalier/data/sources/cifar/tar_gz.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"
#include "espalier/data/sources/cifar/format.h"

namespace espalier::data {

namespace {

constexpr int64_t kBlockBytes = 512;
constexpr int64_t kMaxTextBytes =
    64 * 1024;  // a long name or a pax header; official archives need under 1 KiB

using Block = std::array<std::byte, kBlockBytes>;

// A field of a header, up to its first zero byte.
std::string text_field(const Block& block, size_t offset, size_t size) {
  const char* begin = reinterpret_cast<const char*>(block.data()) + offset;
  return {begin, strnlen(begin, size)};
}

// Octal digits, with spaces before and spaces or a zero after; nothing where it is anything else.
std::optional<int64_t> octal_field(const Block& block, size_t offset, size_t size) {
  std::string text = text_field(block, offset, size);
  const size_t begin = std::min(text.find_first_not_of(' '), text.size());
  text = text.substr(begin, text.find_last_not_of(' ') + 1 - begin);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 8);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// The sum of all bytes, with the checksum's own field counted as spaces.
int64_t header_sum(const Block& block) {
  int64_t sum = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : std::to_integer<int64_t>(block[i]);
  }
  return sum;
}

int64_t padded(int64_t size_bytes) {
  return (size_bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

bool is_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

ReadSome read_from(std::span<const std::byte> bytes) {
  return [bytes](std::span<std::byte> out) mutable {
    const size_t count = std::min(out.size(), bytes.size());
    if (count > 0) std::memcpy(out.data(), bytes.data(), count);
    bytes = bytes.subspan(count);
    return count;
  };
}

struct TarGzReader::Header {
  std::string name;
  char type = '0';
  int64_t size_bytes = 0;
};

struct TarGzReader::Inflater {
  ReadSome source;
  z_stream stream = {};
  std::vector<std::byte> input = std::vector<std::byte>(256 * 1024);
  bool is_ended = false;
};

TarGzReader::TarGzReader(ReadSome source, std::string file)
    : file_(std::move(file)), inflater_(std::make_unique<Inflater>()) {
  inflater_->source = std::move(source);
  // 16: a gzip header and trailer, whose CRC and length zlib then verifies.
  if (inflateInit2(&inflater_->stream, 16 + MAX_WBITS) != Z_OK) fail("{}: not enough memory for zlib", file_);
}

TarGzReader::~TarGzReader() {
  inflateEnd(&inflater_->stream);
}

// Up to out.size() bytes of the tar stream; fewer only where the gzip stream has ended and was verified.
size_t TarGzReader::read_tar(std::span<std::byte> out) {
  z_stream& stream = inflater_->stream;
  size_t done = 0;
  while (done < out.size() && !inflater_->is_ended) {
    if (stream.avail_in == 0) {
      const size_t got = inflater_->source(inflater_->input);
      if (got == 0) {
        fail("{}: the gzip stream ends early, after {} bytes inflated; the download is incomplete, {}", file_,
             position_ + static_cast<int64_t>(done), kRemedy);
      }
      stream.next_in = reinterpret_cast<Bytef*>(inflater_->input.data());
      stream.avail_in = static_cast<uInt>(got);
    }
    const size_t room = std::min<size_t>(out.size() - done, size_t{1} << 30);  // zlib counts in 32 bits
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    done += room - stream.avail_out;
    if (result == Z_STREAM_END) {
      inflater_->is_ended = true;
    } else if (result != Z_OK && !(result == Z_BUF_ERROR && stream.avail_in == 0)) {
      fail("{}: the gzip stream is damaged after {} bytes inflated ({}); {}", file_,
           position_ + static_cast<int64_t>(done), stream.msg != nullptr ? stream.msg : "unexpected data",
           kRemedy);
    }
  }
  position_ += static_cast<int64_t>(done);
  if (position_ > kMaxTotalBytes) {
    fail("{}: inflates to more than {} bytes, far more than a CIFAR archive; {}", file_, kMaxTotalBytes,
         kRemedy);
  }
  return done;
}

void TarGzReader::read_exactly(std::span<std::byte> out, const char* what) {
  const int64_t begin = position_;
  const size_t got = read_tar(out);
  if (got != out.size()) {
    fail("{}: the tar archive ends inside {} at byte {}, expected {} bytes there and found {}; {}", file_,
         what, begin, out.size(), got, kRemedy);
  }
}

// False at the zero block that begins the archive's end.
bool TarGzReader::read_header(Header& header) {
  const int64_t at = position_;
  Block block;
  read_exactly(block, "a header");
  if (is_zero(block)) return false;

  const std::optional<int64_t> checksum = octal_field(block, 148, 8);
  const int64_t sum = header_sum(block);
  if (checksum != sum) {
    fail("{}: damaged tar header at byte {}: its checksum is {}, expected {}; {}", file_, at,
         checksum ? fmt::to_string(*checksum) : "not a number", sum, kRemedy);
  }
  const std::string magic = text_field(block, 257, 6);
  if (!magic.empty() && !magic.starts_with("ustar")) {
    fail("{}: tar header at byte {} is of an unknown kind {}, expected ustar; {}", file_, at,
         in_quotes(magic), kRemedy);
  }
  const std::optional<int64_t> size = octal_field(block, 124, 12);
  if (!size || *size > kMaxTotalBytes) {
    fail("{}: tar header at byte {} has no valid size, expected octal digits up to {} bytes; {}", file_, at,
         kMaxTotalBytes, kRemedy);
  }
  header.name = text_field(block, 0, 100);
  if (magic == "ustar") {  // POSIX; GNU writes "ustar " and keeps other things where the prefix is
    const std::string prefix = text_field(block, 345, 155);
    if (!prefix.empty()) header.name = prefix + "/" + header.name;
  }
  header.type = std::to_integer<char>(block[156]);
  header.size_bytes = *size;
  return true;
}

void TarGzReader::skip(int64_t size_bytes, const char* what) {
  std::array<std::byte, 16 * 1024> scratch;
  while (size_bytes > 0) {
    const auto part = std::min<size_t>(static_cast<size_t>(size_bytes), scratch.size());
    read_exactly(std::span(scratch).first(part), what);
    size_bytes -= static_cast<int64_t>(part);
  }
}

std::string TarGzReader::read_text(int64_t size_bytes, const char* what) {
  if (size_bytes > kMaxTextBytes) {
    fail("{}: {} before byte {} has {} bytes, expected at most {}; {}", file_, what, position_, size_bytes,
         kMaxTextBytes, kRemedy);
  }
  std::string text(static_cast<size_t>(size_bytes), '\0');
  read_exactly(std::as_writable_bytes(std::span(text)), what);
  skip(padded(size_bytes) - size_bytes, what);
  return text;
}

// The rest of the archive must be zeros: tar pads its end to a multiple of 10 KiB.
void TarGzReader::finish() {
  is_finished_ = true;
  Block block;
  read_exactly(block, "its end mark");
  if (!is_zero(block))
    fail("{}: one zero block where an archive ends with two, at byte {}; {}", file_, position_, kRemedy);
  while (const size_t got = read_tar(block)) {
    if (!is_zero(std::span(block).first(got))) {
      fail("{}: data after the archive's end mark, before byte {}; {}", file_, position_, kRemedy);
    }
  }
}

// Records of "LENGTH KEY=VALUE\n", where LENGTH counts the whole record; only path and size matter here.
void TarGzReader::read_pax(std::string_view text, std::string& name, std::optional<int64_t>& size) const {
  while (!text.empty()) {
    size_t length = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
    const auto digits = static_cast<size_t>(end - text.data());
    if (error != std::errc() || length > text.size() || length < digits + 2 || text[digits] != ' ' ||
        text[length - 1] != '\n') {
      fail("{}: damaged pax header before byte {}: a record has no valid length; {}", file_, position_,
           kRemedy);
    }
    const std::string_view record = text.substr(digits + 1, length - digits - 2);
    if (record.starts_with("path=")) name = record.substr(5);
    if (record.starts_with("size=")) {
      const std::string_view value = record.substr(5);
      const char* const last = value.data() + value.size();
      int64_t parsed = -1;
      const auto result = std::from_chars(value.data(), last, parsed);
      if (result.ec != std::errc() || result.ptr != last || parsed < 0 || parsed > kMaxTotalBytes) {
        fail("{}: pax header before byte {} gives no valid size, expected 0 to {}; {}", file_, position_,
             kMaxTotalBytes, kRemedy);
      }
      size = parsed;
    }
    text.remove_prefix(length);
  }
}

std::optional<TarMember> TarGzReader::next() {
  if (is_finished_) return std::nullopt;
  skip(member_left_ + member_padding_, "a member");
  member_left_ = member_padding_ = 0;

  std::string long_name;
  std::optional<int64_t> long_size;
  Header header;
  while (read_header(header)) {
    if (header.type == 'L') {
      long_name = read_text(header.size_bytes, "a long name");
      long_name.resize(strnlen(long_name.data(), long_name.size()));
      continue;
    }
    if (header.type == 'x') {
      read_pax(read_text(header.size_bytes, "a pax header"), long_name, long_size);
      continue;
    }
    const bool is_file = header.type == '0' || header.type == '\0';
    if (is_file) {
      TarMember member{.name = long_name.empty() ? header.name : long_name,
                       .size_bytes = long_size.value_or(header.size_bytes)};
      member_left_ = member.size_bytes;
      member_padding_ = padded(member_left_) - member_left_;
      // v7 marks a directory only by the slash at the end of its name.
      if (!member.name.ends_with('/')) return member;
      skip(member_left_ + member_padding_, "a directory");
      member_left_ = member_padding_ = 0;
    } else if (header.type < '1' || header.type > '6') {
      // Links, devices, directories and pipes (1 to 6) have no body, whatever their size field says.
      skip(padded(header.size_bytes), "a member");
    }
    long_name.clear();
    long_size.reset();
  }
  finish();
  return std::nullopt;
}

void TarGzReader::read(std::span<std::byte> out) {
  if (static_cast<int64_t>(out.size()) > member_left_) {
    fail("{}: asked for {} bytes of a member that has {} left", file_, out.size(), member_left_);
  }
  read_exactly(out, "a member");
  member_left_ -= static_cast<int64_t>(out.size());
}

}  // namespace espalier::data
