#include "espalier/core/machine/brief_waiting.h"

#include <limits.h>
#include <unistd.h>

#include <array>
#include <string_view>
#include <vector>

namespace espalier {

void wait_briefly(char** argv, char** environment) {
  static char spins[] = "GOMP_SPINCOUNT=10000";
  std::vector<char*> changed{spins};
  for (char** each = environment; *each != nullptr; ++each) {
    const std::string_view text(*each);
    if (text.starts_with("OMP_WAIT_POLICY=") || text.starts_with("GOMP_SPINCOUNT=")) return;
    changed.push_back(*each);
  }
  changed.push_back(nullptr);
  // By its own name, which tools show, not as /proc/self/exe.
  std::array<char, PATH_MAX> program{};
  if (readlink("/proc/self/exe", program.data(), program.size() - 1) < 0) return;
  // Where this fails, since the file is gone or may not be read, the process goes on as it is, and doctor
  // says so.
  execve(program.data(), argv, changed.data());
}

}  // namespace espalier
