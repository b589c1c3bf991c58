#include "espalier/core/files/safetensors_writer.h"

#include <fmt/ranges.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"

namespace espalier {
namespace {

std::string make_header(const std::string& path, const std::vector<TensorSpec>& tensors,
                        const Metadata& metadata) {
  const auto text_of = [&](const std::string& text) {
    if (!is_utf8(text)) fail("{}: cannot hold the text {}: it is not UTF-8", path, in_quotes(text));
    return nlohmann::json(text).dump();
  };
  std::string header = "{";
  const auto out = std::back_inserter(header);
  const auto comma = [&] { return header.back() == '{' ? "" : ","; };
  if (!metadata.empty()) {
    fmt::format_to(out, "\"{}\":{{", kSafetensorsMetadataKey);
    for (const auto& [key, value] : metadata) {
      fmt::format_to(out, "{}{}:{}", comma(), text_of(key), text_of(value));
    }
    header += "}";
  }
  std::set<std::string_view> names{kSafetensorsMetadataKey};
  int64_t begin = 0;
  for (const auto& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      fail("{}: cannot hold a second tensor named {}", path, in_quotes(tensor.name));
    }
    int64_t end = 0;
    if (__builtin_add_overflow(begin, tensor.size_bytes(), &end)) {
      fail("{}: its tensors together do not fit into 2^63 bytes", path);
    }
    fmt::format_to(out, "{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", comma(),
                   text_of(tensor.name), name_of(tensor.type), fmt::join(tensor.shape, ","), begin, end);
    begin = end;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kSafetensorsMaxHeaderBytes) {
    fail("{}: its header would have {} bytes, and the format allows {}", path, header.size(),
         kSafetensorsMaxHeaderBytes);
  }
  return header;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                                     const Metadata& metadata)
    : path_(path), file_(path) {
  const std::string header = make_header(path, tensors, metadata);
  for (const auto& tensor : tensors) data_bytes_ += tensor.size_bytes();
  const uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > static_cast<uint64_t>(data_bytes_ - written_bytes_)) {
    fail("{}: {} bytes were given after {}, but its header promises {}", path_, bytes.size(), written_bytes_,
         data_bytes_);
  }
  file_.write(bytes);
  written_bytes_ += static_cast<int64_t>(bytes.size());
}

void SafetensorsWriter::commit() {
  if (written_bytes_ != data_bytes_) {
    fail("{}: {} bytes were given, but its header promises {}", path_, written_bytes_, data_bytes_);
  }
  file_.commit();
}

}  // namespace espalier
