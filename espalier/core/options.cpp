#include "espalier/core/options.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <type_traits>

#include "espalier/core/error.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/core/text/list.h"
#include "espalier/core/text/nearest.h"
#include "espalier/core/text/utf8.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// A configuration is a page of text; a file larger than this is something else.
constexpr size_t kLargestConfigBytes = 1 << 20;
// Options are flat. Printing a value for a message takes stack in proportion to its depth.
constexpr int kDeepestConfig = 32;

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // C++20 has it without: for clang before 17

std::string bound_text(const OptionRef& option, double bound) {
  if (option.info.format == OptionFormat::kByteSize) return format_byte_size(static_cast<int64_t>(bound));
  const bool whole = bound == std::floor(bound) && std::abs(bound) < 0x1p62;
  return whole ? fmt::format("{}", static_cast<int64_t>(bound)) : fmt::format("{}", bound);
}

template <class Number>
bool in_range(const OptionInfo& info, Number value) {
  // long double holds every 64-bit integer, so 2^64 - 1 is not rounded past a bound.
  const auto wide = static_cast<long double>(value);
  return wide >= static_cast<long double>(info.low) && wide <= static_cast<long double>(info.high);
}

std::string place_of(const OptionRef& option, std::string_view where) {
  return where.empty() ? fmt::format("--{}", option.info.name)
                       : fmt::format("{}: \"{}\"", where, option.info.name);
}

[[noreturn]] void refuse(const OptionRef& option, std::string_view where, std::string_view got) {
  const std::string hint = option.info.choices.empty() ? std::string{} : suggestion(got, option.info.choices);
  fail_usage("{}: want {}, got {}{}", place_of(option, where), describe_expected(option),
             got.empty() ? "nothing" : on_one_line(got), hint);
}

// The value may be held by the option: range, choices, finite.
bool allows(const OptionRef& option) {
  const OptionInfo& info = option.info;
  return std::visit(
      Overloaded{[](const bool*) { return true; }, [](const TextMember&) { return true; },
                 [&](const double* value) { return std::isfinite(*value) && in_range(info, *value); },
                 [&](const std::string* value) {
                   for (std::string_view choice : info.choices) {
                     if (*value == choice) return true;
                   }
                   return info.choices.empty();
                 },
                 [&](const auto* value) { return in_range(info, *value); }},
      option.value);
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

std::optional<bool> parse_bool(std::string_view text) {
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  return std::nullopt;
}

// Whether `text` could be read as the member's type; the range is another matter.
bool assign_text(const OptionRef& option, std::string_view text) {
  const auto assign = [](auto* member, auto parsed) {
    if (parsed) *member = *parsed;
    return parsed.has_value();
  };
  return std::visit(Overloaded{[&](bool* member) { return assign(member, parse_bool(text)); },
                               [&](std::string* member) {
                                 *member = text;
                                 return true;
                               },
                               [&](const TextMember& member) { return member.set(text); },
                               [&](int64_t* member) {
                                 return assign(member, option.info.format == OptionFormat::kByteSize
                                                           ? parse_byte_size(text)
                                                           : parse_number<int64_t>(text));
                               },
                               [&](auto* member) {
                                 return assign(member,
                                               parse_number<std::remove_pointer_t<decltype(member)>>(text));
                               }},
                    option.value);
}

bool assign_json(const OptionRef& option, const Json& value) {
  return std::visit(Overloaded{[&](bool* member) {
                                 if (!value.is_boolean()) return false;
                                 *member = value.get<bool>();
                                 return true;
                               },
                               [&](int64_t* member) {
                                 if (option.info.format == OptionFormat::kByteSize && value.is_string()) {
                                   return assign_text(option, value.get_ref<const std::string&>());
                                 }
                                 // An unsigned number is one that was written without a sign; it may be too
                                 // large.
                                 constexpr auto kLargest =
                                     static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
                                 if (!value.is_number_integer()) return false;
                                 if (value.is_number_unsigned() && value.get<uint64_t>() > kLargest)
                                   return false;
                                 *member = value.get<int64_t>();
                                 return true;
                               },
                               [&](uint64_t* member) {
                                 if (!value.is_number_integer()) return false;
                                 if (!value.is_number_unsigned() && value.get<int64_t>() < 0) return false;
                                 *member = value.get<uint64_t>();
                                 return true;
                               },
                               [&](double* member) {
                                 if (!value.is_number()) return false;
                                 *member = value.get<double>();
                                 return true;
                               },
                               [&](std::string* member) {
                                 if (!value.is_string()) return false;
                                 *member = value.get<std::string>();
                                 return true;
                               },
                               [&](const TextMember& member) {
                                 return value.is_string() && member.set(value.get_ref<const std::string&>());
                               }},
                    option.value);
}

// Short enough for one line, whatever a file holds.
std::string shown(const Json& value) {
  return on_one_line(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

void detail::check_names(const OptionList& options) {
  std::set<std::string_view> names;
  const auto add = [&names](std::string_view name) {
    if (!names.insert(name).second) fail("option --{} is declared twice", name);
  };
  for (const OptionRef& option : options) {
    add(option.info.name);
    for (const OptionAlias& alias : option.info.aliases) add(alias.name);
  }
}

TextMember names_in(std::vector<std::string>& member, std::string flag) {
  return {.get = [&member] { return fmt::format("{}", fmt::join(member, ",")); },
          .set =
              [&member, flag = std::move(flag)](std::string_view text) {
                member = text.empty() ? std::vector<std::string>{} : split_names(flag, std::string(text));
                return true;
              },
          .expected = "names with commas between"};
}

std::string describe_range(const OptionRef& option) {
  const bool has_low = std::isfinite(option.info.low);
  const bool has_high = std::isfinite(option.info.high);
  const std::string low = has_low ? bound_text(option, option.info.low) : "";
  const std::string high = has_high ? bound_text(option, option.info.high) : "";
  if (has_low && has_high) return fmt::format("from {} to {}", low, high);
  if (has_low) return fmt::format("of at least {}", low);
  if (has_high) return fmt::format("of at most {}", high);
  return std::holds_alternative<uint64_t*>(option.value) ? "from 0 to 2^64 - 1" : "";
}

std::string describe_expected(const OptionRef& option) {
  if (!option.info.choices.empty()) return fmt::format("one of {}", fmt::join(option.info.choices, ", "));
  const bool is_size = option.info.format == OptionFormat::kByteSize;
  const std::string range = describe_range(option);
  const std::string kind(
      std::visit(Overloaded{[](const bool*) -> std::string_view { return "true or false"; },
                            [](const std::string*) -> std::string_view { return "text"; },
                            [](const TextMember& member) { return member.expected; },
                            [](const double*) -> std::string_view { return "a number"; },
                            [is_size](const auto*) -> std::string_view {
                              return is_size ? "a size such as 20GiB" : "an integer";
                            }},
                 option.value));
  return range.empty() ? kind : kind + " " + range;
}

std::string value_text(const OptionRef& option) {
  const bool is_size = option.info.format == OptionFormat::kByteSize;
  return std::visit(Overloaded{[](const std::string* value) { return *value; },
                               [](const TextMember& member) { return member.get(); },
                               [is_size](const int64_t* value) {
                                 return is_size && *value != 0 ? format_byte_size(*value)
                                                               : fmt::format("{}", *value);
                               },
                               [](const auto* value) { return fmt::format("{}", *value); }},
                    option.value);
}

void set_from_text(const OptionRef& option, std::string_view text) {
  // It goes into the files of a run, which are JSON.
  if (!is_utf8(text)) fail_usage("{}: want text in UTF-8, got {}", place_of(option, {}), in_quotes(text));
  if (!assign_text(option, text) || !allows(option)) {
    const bool is_text = std::holds_alternative<std::string*>(option.value) ||
                         std::holds_alternative<TextMember>(option.value);
    refuse(option, {}, is_text && text.empty() ? "\"\"" : text);
  }
}

void from_json(const OptionList& options, const Json& json, std::string_view where) {
  if (!json.is_object()) fail_usage("{}: want one JSON object of options, got {}", where, shown(json));
  for (const auto& [key, value] : json.items()) {
    const OptionRef* known = nullptr;
    std::vector<std::string_view> names;
    for (const OptionRef& option : options) {
      names.push_back(option.info.name);
      if (option.info.name == key) known = &option;
    }
    if (known == nullptr) fail_usage("{}: unknown key {}{}", where, shown(Json(key)), suggestion(key, names));
    if (!assign_json(*known, value) || !allows(*known)) {
      // Choices are compared without quotes, so that the nearest one is found.
      refuse(*known, where,
             value.is_string() && !known->info.choices.empty() && !value.get<std::string>().empty()
                 ? value.get<std::string>()
                 : shown(value));
    }
  }
}

void read_config_file(const OptionList& options, const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text(kLargestConfigBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (stream.bad() || (!stream.eof() && text.empty())) {
    fail_usage("configuration {}: cannot be read; give a JSON file as --print-config prints it", file);
  }
  if (text.size() > kLargestConfigBytes) {
    fail_usage("configuration {}: larger than {}, which no configuration is", file,
               format_byte_size(kLargestConfigBytes));
  }
  std::set<std::string> keys;
  Json json;
  try {
    json = Json::parse(text, [&](int depth, Json::parse_event_t event, Json& parsed) {
      if (depth > kDeepestConfig) {
        fail_usage("{}: nests deeper than {} levels; want one JSON object of options", file, kDeepestConfig);
      }
      if (event == Json::parse_event_t::key && depth == 1 && !keys.insert(parsed.get<std::string>()).second) {
        fail_usage("{}: key {} stands there twice", file, shown(parsed));
      }
      return true;
    });
  } catch (const Json::exception& error) {  // a number beyond double's range is no parse_error
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": the bracket helps nobody.
    const std::string_view what = error.what();
    const size_t bracket = what.find("] ");
    fail_usage("{}: not JSON: {}", file, on_one_line(bracket == what.npos ? what : what.substr(bracket + 2)));
  }
  from_json(options, json, file);
}

void validate(const OptionList& options, std::string_view where) {
  for (const OptionRef& option : options) {
    if (!allows(option)) refuse(option, where, value_text(option));
  }
}

Json to_json(const OptionList& options) {
  Json json = Json::object();
  for (const OptionRef& option : options) {
    Json& value = json[std::string(option.info.name)];
    std::visit(Overloaded{[&](const TextMember& member) { value = member.get(); },
                          [&](const auto* member) { value = *member; }},
               option.value);
  }
  return json;
}

std::string config_text(const OptionList& options) {
  return to_json(options).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace espalier
