// Ctrl-C, SIGTERM and SIGUSR1, made into an orderly end: the first signal only sets a flag, which long work
// asks for between two pieces (every step, every file); the exception then unwinds as any error does, so that
// half-written files are removed. A signal that comes more than a second after the first ends the process at
// once. One that comes sooner is the first again: `timeout` and schedulers send theirs to the process and to
// its group, half a millisecond apart, and a Ctrl-C reaches a process through its terminal and its parent.
//
// Signals are caught only after catch_interrupts(), which the command line calls; a program that embeds the
// library keeps its own handlers, and throw_if_interrupted() then does nothing.
#pragma once

#include <exception>

namespace espalier {

// Not an Error: nothing went wrong. Only cli/program.cpp catches it.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_(signal) {}
  const char* what() const noexcept override { return "interrupted"; }
  // By convention 128 + the signal: 130 for SIGINT, 143 for SIGTERM, and for SIGUSR1, by which schedulers
  // announce one.
  int exit_code() const;

 private:
  int signal_;
};

void catch_interrupts();

// What a signal does before it ends the process at once: gives back a terminal that a view has taken. It
// runs in a signal handler, and must be safe there. While one is set the first signal prints nothing, since
// the screen is the view's. nullptr: none.
void set_last_act(void (*last_act)());
// The same, for whoever else is about to end the process at once.
void perform_last_act();

// The first signal that came, or 0.
int pending_interrupt();

void throw_if_interrupted();

// From here on throw_if_interrupted() does nothing: several processes end together or not at all, and whoever
// asks all of them (run/directory.h) throws.
void leave_interrupts_to_an_agreement();

}  // namespace espalier
