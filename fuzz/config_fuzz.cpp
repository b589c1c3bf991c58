// --config-json, and values given as flags. Held: a configuration that was accepted passes validate(), and
// what --print-config prints of it is read back as the same configuration.
#include <string>

#include "espalier/cli/flags/source.h"
#include "espalier/core/options.h"
#include "espalier/data/sources/source.h"
#include "fuzz/memory_file.h"
#include "fuzz/target.h"

namespace {

using namespace espalier;

// Every kind of option there is, beside those of a real command.
struct AllOptions {
  data::SourceConfig source;
  bool flag = false;
  int64_t whole = 0;
  int64_t bounded = 5;
  int64_t memory = 0;
  uint64_t seed = 0;
  double rate = 0.1;
  double any_number = 0;
  std::string choice = "first";

  template <class Visitor>
  void visit(Visitor&& v) {
    cli::visit_source(v, source);
    v({.name = "flag", .help = "a flag"}, flag);
    v({.name = "whole", .help = "any integer"}, whole);
    v({.name = "bounded", .help = "an integer in a range", .low = 1, .high = 64}, bounded);
    v({.name = "memory", .help = "a size", .low = 0, .format = OptionFormat::kByteSize}, memory);
    v({.name = "seed", .help = "any unsigned integer"}, seed);
    v({.name = "rate", .help = "a number in a range", .low = 0, .high = 1}, rate);
    v({.name = "any-number", .help = "any number"}, any_number);
    v({.name = "choice", .help = "one of some", .choices = {"first", "second"}}, choice);
  }
};

void check_accepted(AllOptions& options) {
  const OptionList list = list_options(options);
  const std::string printed = config_text(list);
  fuzz::require(fuzz::reads([&] { validate(list); }), "what was accepted is valid");
  AllOptions again;
  const OptionList list_again = list_options(again);
  const fuzz::MemoryFile file(std::as_bytes(std::span(printed)));
  fuzz::require(fuzz::reads([&] { read_config_file(list_again, file.path()); }), "what was printed is read");
  fuzz::require(config_text(list_again) == printed, "what was printed and read is the same");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  AllOptions options;
  const OptionList list = list_options(options);
  const fuzz::MemoryFile file(fuzz::bytes_of(data, size));
  if (fuzz::reads([&] { read_config_file(list, file.path()); })) {
    check_accepted(options);
    // Messages show a path whole.
    if (options.source.data.size() <= 200) fuzz::reads([&] { data::canonical_source(options.source); });
  }
  for (const OptionRef& option : list) {
    fuzz::reads([&] { set_from_text(option, fuzz::text_of(data, size)); });
  }
  return 0;
}
