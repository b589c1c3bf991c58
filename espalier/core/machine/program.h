// Which program made a run, as its main() says: written beside the results.
#pragma once

#include <string>

namespace espalier {

struct ProgramFacts {
  std::string version;
  std::string commit;   // the one its sources were at
  std::string command;  // as it was typed, with quotes where a shell needs them
};

// Once, before any job. A program that embeds the library may leave it out.
void set_program_facts(ProgramFacts facts);
const ProgramFacts& program_facts();

// Arguments as one line that a shell reads back the same.
std::string shell_line(int argc, const char* const* argv);

}  // namespace espalier
