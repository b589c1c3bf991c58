#include "espalier/core/text/metadata_numbers.h"

#include <charconv>
#include <optional>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/text/list.h"
#include "espalier/core/text/utf8.h"

namespace espalier {
namespace {

const std::string& text_of(const Metadata& metadata, const std::string& key, const std::string& file) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) fail("'{}': its metadata has no '{}'", file, key);
  return found->second;
}

std::optional<int64_t> number_in(std::string_view text, const NumberRange& range) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < range.low || value > range.high) return std::nullopt;
  return value;
}

}  // namespace

int64_t metadata_number(const Metadata& metadata, const std::string& key, const NumberRange& range,
                        const std::string& file) {
  const std::string& text = text_of(metadata, key, file);
  const auto number = number_in(text, range);
  if (!number)
    fail("'{}': metadata '{}': want a number from {} to {}, got '{}'; the file is damaged", file, key,
         range.low, range.high, on_one_line(text));
  return *number;
}

std::vector<int64_t> metadata_numbers(const Metadata& metadata, const std::string& key,
                                      const NumberRange& range, const std::string& file) {
  const std::string& text = text_of(metadata, key, file);
  std::vector<int64_t> numbers;
  for (const std::string& part : split_list(text)) {
    const auto number = number_in(part, range);
    if (!number)
      fail(
          "'{}': metadata '{}': want numbers from {} to {} with commas between, got '{}'; the file is "
          "damaged",
          file, key, range.low, range.high, on_one_line(text));
    numbers.push_back(*number);
  }
  return numbers;
}

}  // namespace espalier
