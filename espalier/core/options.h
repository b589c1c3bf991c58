// One declaration per option: a struct of options lists its members once, in visit(), and that list serves
// the command line, --help, --print-config, the saved configuration and its validation.
//
//   struct TrainOptions {
//     int64_t batch = 512;
//     template <class Visitor> void visit(Visitor&& v) {
//       v({.name = "batch", .help = "samples per lane and step", .low = 1, .high = 1 << 20}, batch);
//     }
//   };
//
// Members are bool, int64_t, uint64_t, double or std::string; members of any other type are visited through
// text: one_of() for an enum, names_in() for a list. Their initialisers are the defaults. Structs nest:
// visit() may call another struct's visit(v). Names are unique in the whole list; numbers are finite.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace espalier {

// How the value is written: kByteSize is an int64_t that also reads "20GiB".
enum class OptionFormat : uint8_t { kPlain, kByteSize };

// Another name of an option on the command line; configurations know the option's own name alone.
struct OptionAlias {
  std::string_view name;
  std::string_view value = {};  // a flag without a value that stands for this one: --gpu-preload
  // What its values are called in the option's own words; empty: the same.
  std::vector<std::pair<std::string_view, std::string_view>> values = {};
};

struct OptionInfo {
  std::string_view name;  // "batch-per-env": the flag without dashes, and the key in a configuration
  std::string_view help;
  double low = -std::numeric_limits<double>::infinity();  // inclusive, for numbers
  double high = std::numeric_limits<double>::infinity();
  std::vector<std::string_view> choices = {};  // for strings; empty: any text
  std::string_view placeholder = {};           // what --help calls the value: "HxW"; empty: by its type
  OptionFormat format = OptionFormat::kPlain;
  std::vector<OptionAlias> aliases = {};
  std::string_view group = {};  // the heading that --help lists it under
};

// A member of another type, read and written as text.
struct TextMember {
  std::function<std::string()> get;
  std::function<bool(std::string_view)> set;   // false: no such value; may also throw a sentence of its own
  std::string_view expected = "text";          // for messages: "HxW, such as 32x32"
  std::vector<std::string_view> choices = {};  // all values there are; empty: any
};

// An enum by the names of its values.
template <class Enum>
TextMember one_of(Enum& member, std::vector<std::pair<std::string_view, Enum>> names) {
  TextMember made;
  for (const auto& [name, value] : names) made.choices.push_back(name);
  made.get = [&member, names] {
    for (const auto& [name, value] : names)
      if (value == member) return std::string(name);
    return std::string();
  };
  made.set = [&member, names = std::move(names)](std::string_view text) {
    for (const auto& [name, value] : names) {
      if (name != text) continue;
      member = value;
      return true;
    }
    return false;
  };
  return made;
}

// Names with commas between; none may be empty or stand there twice. flag: how messages call the list.
TextMember names_in(std::vector<std::string>& member, std::string flag);

// The declarations of one part of a configuration, all under one heading of --help.
template <class Visitor>
auto in_group(Visitor& visitor, std::string_view group) {
  return [&visitor, group](OptionInfo info, auto&& member) {
    if (info.group.empty()) info.group = group;
    visitor(info, member);
  };
}

// One option of a list: what was declared, and the member that holds the value.
struct OptionRef {
  OptionInfo info;
  std::variant<bool*, int64_t*, uint64_t*, double*, std::string*, TextMember> value;
};

// Points into the options it was made from, which must outlive it.
using OptionList = std::vector<OptionRef>;

template <class Options>
concept HasOptions = requires(Options& options) { options.visit([](const OptionInfo&, auto&&) {}); };

namespace detail {
void check_names(const OptionList& options);

template <class Member>
OptionRef referred(OptionInfo info, Member& member) {
  if constexpr (std::is_same_v<std::remove_cv_t<Member>, TextMember>) {
    if (info.choices.empty()) info.choices = member.choices;
    return {std::move(info), member};
  } else {
    return {std::move(info), &member};
  }
}
}  // namespace detail

template <HasOptions Options>
OptionList list_options(Options& options) {
  OptionList list;
  options.visit(
      [&list](const OptionInfo& info, auto&& member) { list.push_back(detail::referred(info, member)); });
  detail::check_names(list);
  return list;
}

// "an integer from 1 to 64", "one of error, skip": what a value of this option must be, for help and errors.
std::string describe_expected(const OptionRef& option);
// Its part about the range: "from 1 to 64", "of at least 1", or nothing.
std::string describe_range(const OptionRef& option);
// The value as a user would write it; text is not quoted.
std::string value_text(const OptionRef& option);

// All of these throw UsageError with one sentence that names the option, the value and what was expected.

// From the command line: errors name "--batch".
void set_from_text(const OptionRef& option, std::string_view text);
// Errors name `where` (a file, or "configuration") and the key; an unknown key is refused with the nearest
// valid one. Keys that are not there keep their values. On an error some values may already be set.
void from_json(const OptionList& options, const nlohmann::ordered_json& json, std::string_view where);
// The same from a file; also refuses a key that stands there twice.
void read_config_file(const OptionList& options, const std::string& file);
// For values that were set in code. `where` empty: errors name the flag.
void validate(const OptionList& options, std::string_view where = {});

// In the order of declaration.
nlohmann::ordered_json to_json(const OptionList& options);
// The same as text, two spaces deep, with a newline at its end.
std::string config_text(const OptionList& options);

template <HasOptions Options>
void from_json(Options& options, const nlohmann::ordered_json& json, std::string_view where) {
  from_json(list_options(options), json, where);
}

template <HasOptions Options>
void validate(Options& options, std::string_view where = {}) {
  validate(list_options(options), where);
}

// By value: listing needs members that may be written. Callers of to_json() include <nlohmann/json.hpp>.
template <HasOptions Options>
auto to_json(Options options) {
  return to_json(list_options(options));
}

template <HasOptions Options>
std::string config_text(Options options) {
  return config_text(list_options(options));
}

}  // namespace espalier
