// The terminal, taken for a screen of its own: the alternate screen, no cursor, keys as they are pressed.
//
// Kept true: however the process ends it gives the terminal back as it was (the normal screen, the cursor,
// the modes of the line): in the destructor, at exit(), at std::terminate, in the handlers of signals that
// end a process, and before a later Ctrl-C ends it at once (core/machine/interrupt). Only SIGKILL cannot be
// helped. While the process is stopped (Ctrl-Z) or in the background the terminal is the shell's.
//
// Standard output must be a terminal. One session at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::watch {

enum class Key : unsigned char { kQuit, kUp, kDown, kPageUp, kPageDown, kHome, kEnd };

// Bytes of a terminal as keys. Sequences may come in pieces; what it does not know it passes over.
class KeyReader {
 public:
  std::vector<Key> read(std::string_view bytes);

 private:
  std::string begun_;  // a sequence that is not complete
};

struct TerminalSize {
  int columns = 80;
  int rows = 24;
};
// The size of standard output, now.
TerminalSize terminal_size();

class TerminalSession {
 public:
  TerminalSession();
  ~TerminalSession();
  TerminalSession(const TerminalSession&) = delete;
  TerminalSession& operator=(const TerminalSession&) = delete;

  enum class Screen : unsigned char { kNotOurs, kJustTaken, kOurs };
  // Takes the terminal where the process is in the foreground and has it not. Just taken: it is empty.
  Screen take();

  // Does nothing while the terminal is not ours.
  void write(std::string_view text);

  // Waits for keys, at most so long, or until `also` (a file descriptor) can be read.
  std::vector<Key> wait_for_keys(int timeout_ms, int also);

 private:
  KeyReader keys_;
  bool can_read_;
};

}  // namespace espalier::watch
