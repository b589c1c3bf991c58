// One declaration an option: a struct of options lists its members once, in visit(), and that list serves the
// command line, --help, --print-config, the saved configuration and its validation.
//
//   struct TrainOptions {
//     int64_t batch = 512;
//     template <class Visitor> void visit(Visitor&& v) {
//       v({.name = "batch", .help = "samples a lane and step", .low = 1, .high = 1 << 20}, batch);
//     }
//   };
//
// Members are bool, int64_t, uint64_t, double or std::string; their initialisers are the defaults. Structs
// nest: visit() may call another struct's visit(v). Names are unique in the whole list; numbers are finite.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace espalier {

// How the value is written: kByteSize is an int64_t that also reads "20GiB".
enum class OptionFormat : uint8_t { kPlain, kByteSize };

struct OptionInfo {
  std::string_view name;  // "batch-per-env": the flag without dashes, and the key in a configuration
  std::string_view help;
  double low = -std::numeric_limits<double>::infinity();  // inclusive, for numbers
  double high = std::numeric_limits<double>::infinity();
  std::vector<std::string_view> choices = {};  // for strings; empty: any text
  std::string_view placeholder = {};           // what --help calls the value: "HxW"; empty: by its type
  OptionFormat format = OptionFormat::kPlain;
};

// One option of a list: what was declared, and the member that holds the value.
struct OptionRef {
  OptionInfo info;
  std::variant<bool*, int64_t*, uint64_t*, double*, std::string*> value;
};

// Points into the options it was made from, which must outlive it.
using OptionList = std::vector<OptionRef>;

template <class Options>
concept HasOptions = requires(Options& options) { options.visit([](const OptionInfo&, auto&) {}); };

namespace detail {
void check_names(const OptionList& options);
}

template <HasOptions Options>
OptionList list_options(Options& options) {
  OptionList list;
  options.visit([&list](const OptionInfo& info, auto& member) { list.push_back({info, &member}); });
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
