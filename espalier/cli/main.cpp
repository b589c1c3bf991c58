// The program as a process of its own.
#include <algorithm>
#include <string_view>
#include <vector>

#include "espalier/cli/program.h"
#include "espalier/core/machine/passive_waiting.h"

namespace {

// Whether it is worth loading the libraries a second time: not for a text that is printed at once.
bool computes(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const auto is_text = [](std::string_view word) {
    return word == "--help" || word == "-h" || word == "--version" || word == "--print-config";
  };
  const auto prints = [](std::string_view word) {
    return word == "help" || word == "version" || word == "man" || word == "completion";
  };
  return !words.empty() && !prints(words.front()) && std::ranges::none_of(words, is_text);
}

}  // namespace

int main(int argc, char** argv) {
  if (computes(argc, argv)) espalier::wait_passively(argv);
  return espalier::cli::run_program(argc, argv);
}
