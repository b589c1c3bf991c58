#include "espalier/core/machine/passive_waiting.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace espalier {

void wait_passively(char** argv) {
  constexpr const char* kPolicy = "OMP_WAIT_POLICY";
  if (std::getenv(kPolicy) != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  // By its own name, which tools show, not as /proc/self/exe.
  std::error_code code;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", code);
  if (code || setenv(kPolicy, "passive", 0) != 0) return;
  execv(program.c_str(), argv);
  // The file is gone, or may not be read: this process goes on as it is, and says so to doctor.
  unsetenv(kPolicy);
}

}  // namespace espalier
