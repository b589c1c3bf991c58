#include "espalier/core/machine/program.h"

#include <string_view>
#include <utility>

namespace espalier {
namespace {

ProgramFacts& facts_now() {
  static ProgramFacts facts;
  return facts;
}

std::string quoted(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,=+%@";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return std::string(word);
  std::string text(1, '\'');
  for (const char c : word) {
    if (c == '\'')
      text += "'\\''";
    else
      text += c;
  }
  text += '\'';
  return text;
}

}  // namespace

void set_program_facts(ProgramFacts facts) {
  facts_now() = std::move(facts);
}

const ProgramFacts& program_facts() {
  return facts_now();
}

std::string shell_line(int argc, const char* const* argv) {
  std::string line;
  for (int i = 0; i < argc; ++i) {
    if (i > 0) line += ' ';
    line += quoted(argv[i]);
  }
  return line;
}

}  // namespace espalier
