// Another program, started without a shell, and all that it starts in turn.
//
// Kept true: nothing of it outlives a process that is told to stop. The program leads a process group of its
// own; when a signal is pending (interrupt.h) the group is asked to end, half a second later everything that
// descends from it is killed, and Interrupted is thrown. Where this process is killed outright, the system
// kills the program.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace espalier {

struct ProgramOutput {
  bool succeeded = false;  // it was started, and ended with 0
  std::string output;
  std::string errors;  // the end of what it wrote to standard error
};
// Runs a program to its end. Its standard input is empty. One call at a time.
ProgramOutput run_program(const std::vector<std::string>& command);

// What a program wrote to standard output; nothing where it could not be started or did not end with 0.
std::optional<std::string> output_of(const std::vector<std::string>& command);

}  // namespace espalier
