#include "espalier/core/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little endian, and mapped as they are");

namespace espalier {
namespace {

using Json = nlohmann::json;

// Takes the header's JSON event by event: so duplicate keys are seen, numbers keep their kind, and nothing
// nests deeper than the format does. Throws Error at the first event that does not belong.
class HeaderReader : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderReader(std::string_view path) : path_(path) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    if (part_ == HeaderPart::kStart) {
      part_ = HeaderPart::kTop;
    } else if (part_ == HeaderPart::kTop && name_ == kSafetensorsMetadataKey) {
      part_ = HeaderPart::kMetadata;
    } else if (part_ == HeaderPart::kTop) {
      part_ = HeaderPart::kTensor;
      tensor_ = {};
      tensor_.name = name_;
      has_type_ = has_shape_ = false;
      offsets_.reset();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    if (part_ == HeaderPart::kTop) {
      name_ = text;
      if (!names_.insert(name_).second) fail("{}: the header names {} twice", path_, in_quotes(name_));
    } else if (part_ == HeaderPart::kMetadata) {
      key_ = text;
      if (header_.metadata.contains(key_)) fail("{}: the metadata names {} twice", path_, in_quotes(key_));
    } else {
      key_ = text;
      const bool is_type = key_ == "dtype";
      const bool is_shape = key_ == "shape";
      if (!is_type && !is_shape && key_ != "data_offsets") {
        fail("{}: tensor {} has the unknown key {}, want dtype, shape and data_offsets", path_,
             in_quotes(name_), in_quotes(key_));
      }
      if (is_type ? has_type_ : is_shape ? has_shape_ : offsets_.has_value()) {
        fail("{}: tensor {} has {} twice", path_, in_quotes(name_), key_);
      }
    }
    return true;
  }

  bool end_object() override {
    if (part_ == HeaderPart::kTensor) {
      finish_tensor();
      part_ = HeaderPart::kTop;
    } else {
      part_ = part_ == HeaderPart::kMetadata ? HeaderPart::kTop : HeaderPart::kEnd;
    }
    return true;
  }

  bool start_array(size_t) override {
    if (part_ != HeaderPart::kTensor || key_ == "dtype") refuse("an array");
    part_ = HeaderPart::kNumbers;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    part_ = HeaderPart::kTensor;
    if (key_ == "shape") {
      tensor_.shape = std::move(numbers_);
      has_shape_ = true;
    } else {
      if (numbers_.size() != 2) {
        fail("{}: tensor {} has {} data_offsets, want two", path_, in_quotes(name_), numbers_.size());
      }
      offsets_ = {numbers_[0], numbers_[1]};
    }
    numbers_ = {};
    return true;
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (part_ != HeaderPart::kNumbers) refuse("a number");
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      refuse_number(std::to_string(value));
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool number_integer(number_integer_t value) override {
    if (part_ == HeaderPart::kNumbers) refuse_number(std::to_string(value));
    refuse("a number");
  }

  bool number_float(number_float_t, const string_t& text) override {
    if (part_ == HeaderPart::kNumbers) refuse_number(text.substr(0, 40));
    refuse("a number");
  }

  bool string(string_t& text) override {
    if (part_ == HeaderPart::kMetadata) {
      header_.metadata.emplace(key_, std::move(text));
    } else if (part_ == HeaderPart::kTensor && key_ == "dtype") {
      const auto type = stored_type_named(text);
      if (!type) fail("{}: tensor {} has the unknown dtype {}", path_, in_quotes(name_), in_quotes(text));
      tensor_.type = *type;
      has_type_ = true;
    } else {
      refuse("a string");
    }
    return true;
  }

  bool null() override { refuse("null"); }
  bool boolean(bool) override { refuse("a boolean"); }
  bool binary(binary_t&) override { refuse("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail("{}: the header is not valid JSON at its byte {}", path_, position);
  }

 private:
  enum class HeaderPart { kStart, kTop, kMetadata, kTensor, kNumbers, kEnd };

  [[noreturn]] void refuse(const char* what) const {
    switch (part_) {
      case HeaderPart::kStart:
      case HeaderPart::kEnd:
        fail("{}: the header is {}, want one JSON object", path_, what);
      case HeaderPart::kTop:
        fail("{}: the header has {} for {}, want an object", path_, what, in_quotes(name_));
      case HeaderPart::kMetadata:
        fail("{}: the metadata has {} for {}, want a string", path_, what, in_quotes(key_));
      case HeaderPart::kTensor:
        fail("{}: tensor {} has {} for {}, want {}", path_, in_quotes(name_), what, key_,
             key_ == "dtype" ? "a string" : "an array of whole numbers");
      case HeaderPart::kNumbers:
        break;
    }
    fail("{}: tensor {} has {} in {}, want whole numbers only", path_, in_quotes(name_), what, key_);
  }

  [[noreturn]] void refuse_number(const std::string& text) const {
    fail("{}: tensor {} has {} in {}, want a whole number from 0 to 2^63 - 1", path_, in_quotes(name_), text,
         key_);
  }

  void finish_tensor() {
    const auto missing = [&](const char* what) {
      fail("{}: tensor {} has no {}", path_, in_quotes(name_), what);
    };
    if (!has_type_) missing("dtype");
    if (!has_shape_) missing("shape");
    if (!offsets_) missing("data_offsets");
    const auto [begin, end] = *offsets_;
    if (begin > end)
      fail("{}: tensor {} begins at {} and ends before, at {}", path_, in_quotes(name_), begin, end);
    int64_t size_bytes = 0;
    try {
      size_bytes = tensor_.size_bytes();
    } catch (const Error& error) {
      fail("{}: {}", path_, error.what());
    }
    if (end - begin != size_bytes) {
      fail("{}: tensor {} has {} bytes, but its shape and dtype need {}", path_, in_quotes(name_),
           end - begin, size_bytes);
    }
    tensor_.offset_bytes = begin;
    tensor_.length_bytes = size_bytes;
    header_.tensors.push_back(std::move(tensor_));
  }

  std::string_view path_;
  SafetensorsHeader header_;
  HeaderPart part_ = HeaderPart::kStart;
  std::set<std::string> names_;   // every key of the top level so far
  std::string name_;              // the current one
  std::string key_;               // the current key of a tensor or of the metadata
  std::vector<int64_t> numbers_;  // the array being read
  TensorEntry tensor_;
  bool has_type_ = false;
  bool has_shape_ = false;
  std::optional<std::pair<int64_t, int64_t>> offsets_;  // begin, end within the data section
};

// Rules 9 and 11: the tensors cover the data section exactly. Leaves them in the order of their bytes, with
// offsets from the start of the file.
void place_tensors(std::vector<TensorEntry>& tensors, std::string_view path, int64_t data_begin,
                   int64_t num_data_bytes) {
  // By end too, so that an empty tensor comes before the one that begins where it lies.
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.offset_bytes, a.length_bytes) < std::pair(b.offset_bytes, b.length_bytes);
  });
  int64_t end = 0;
  for (const auto& tensor : tensors) {
    const int64_t begin = tensor.offset_bytes;
    if (begin > end) {
      fail("{}: a hole of {} bytes lies before tensor {}", path, begin - end, in_quotes(tensor.name));
    }
    if (begin < end) {
      fail("{}: tensor {} overlaps the one before it by {} bytes", path, in_quotes(tensor.name), end - begin);
    }
    end = begin + tensor.length_bytes;  // cannot overflow: both were read as one number, the end
  }
  if (end > num_data_bytes) {
    fail("{}: has {} bytes of data, but its tensors need {}: the file is cut short", path, num_data_bytes,
         end);
  }
  if (end < num_data_bytes) {
    fail("{}: has {} bytes after its last tensor, want none", path, num_data_bytes - end);
  }
  for (auto& tensor : tensors) tensor.offset_bytes += data_begin;
}

}  // namespace

int64_t TensorSpec::size_bytes() const {
  int64_t size = bytes_of(type);
  for (const int64_t extent : shape) {
    if (extent < 0) fail("tensor {} has the negative extent {}", in_quotes(name), extent);
    if (__builtin_mul_overflow(size, extent, &size)) {
      fail("tensor {} has a shape whose size in bytes does not fit into 63 bits", in_quotes(name));
    }
  }
  return size;
}

SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view path) {
  constexpr size_t kPrefix = kSafetensorsLengthBytes;
  if (file.size() < kPrefix) {
    fail("{}: has {} bytes, too few for a safetensors file, which begins with {}", path, file.size(),
         kPrefix);
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kPrefix);
  if (header_bytes > kSafetensorsMaxHeaderBytes) {
    fail("{}: states a header of {} bytes, and the format allows {}: not a safetensors file", path,
         header_bytes, kSafetensorsMaxHeaderBytes);
  }
  if (header_bytes > file.size() - kPrefix) {
    fail("{}: states a header of {} bytes, but only {} follow: the file is cut short", path, header_bytes,
         file.size() - kPrefix);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kPrefix, header_bytes);
  if (const size_t bad = first_bad_utf8(text); bad != text.size()) {
    fail("{}: the header is not UTF-8 at its byte {}", path, bad);
  }
  // The parser skips a byte order mark and takes a zero byte for the end of its input: neither is JSON.
  const size_t first = text.find_first_not_of(" \t\n\r");
  if (first == std::string_view::npos || text[first] != '{')
    fail("{}: the header is not a JSON object", path);
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    fail("{}: the header is not valid JSON at its byte {}", path, zero);
  }
  HeaderReader reader(path);
  Json::sax_parse(text.begin(), text.end(), &reader);
  SafetensorsHeader header = reader.take();
  const size_t data_begin = kPrefix + text.size();
  place_tensors(header.tensors, path, static_cast<int64_t>(data_begin),
                static_cast<int64_t>(file.size() - data_begin));
  return header;
}

}  // namespace espalier
