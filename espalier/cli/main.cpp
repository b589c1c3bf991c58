// The program as a process of its own.
#include <algorithm>
#include <string_view>
#include <vector>

#include "espalier/cli/program.h"
#include "espalier/core/machine/brief_waiting.h"

namespace {

// Whether it is worth a second start: not for a text that is printed at once.
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

void before_libraries(int argc, char** argv, char** environment) {
  if (computes(argc, argv)) espalier::wait_briefly(argv, environment);
}

// Called by the loader before the constructors of any library: torch's take half a second, which is then not
// spent twice. A sanitizer sets itself up at the same moment, and must come first: its constructors come
// next.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
__attribute__((section(".init_array"), used)) void (*const call)(int, char**, char**) = before_libraries;
#else
__attribute__((section(".preinit_array"), used)) void (*const call)(int, char**, char**) = before_libraries;
#endif

}  // namespace

int main(int argc, char** argv) {
  return espalier::cli::run_program(argc, argv);
}
