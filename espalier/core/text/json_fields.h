// Fields of a JSON object that came from outside, such as a checkpoint's manifest or a file of a run
// directory. nlohmann's own value() and get() throw exceptions of their own where a field is of another kind,
// and convert numbers that do not fit.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace espalier {

// Each gives `otherwise` where there is no such field, and fails where it is of another kind, with one
// sentence: "WHERE: 'KEY': want a whole number, got a string".
std::string text_field(const nlohmann::ordered_json& object, const char* key, const char* otherwise,
                       std::string_view where);
int64_t integer_field(const nlohmann::ordered_json& object, const char* key, int64_t otherwise,
                      std::string_view where);
double number_field(const nlohmann::ordered_json& object, const char* key, double otherwise,
                    std::string_view where);
// Empty where there is none.
nlohmann::ordered_json object_field(const nlohmann::ordered_json& object, const char* key,
                                    std::string_view where);

// A whole number of the type; none where it is of another kind or does not fit.
template <class Integer>
std::optional<Integer> whole_number(const nlohmann::ordered_json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    return std::in_range<Integer>(number) ? std::optional(static_cast<Integer>(number)) : std::nullopt;
  }
  if (!value.is_number_integer()) return std::nullopt;
  const auto number = value.get<int64_t>();
  return std::in_range<Integer>(number) ? std::optional(static_cast<Integer>(number)) : std::nullopt;
}

}  // namespace espalier
