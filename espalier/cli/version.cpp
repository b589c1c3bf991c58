#include "espalier/cli/version.h"

#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <string_view>

#include "espalier/core/machine/cuda_info.h"

namespace espalier::cli {

std::string built_torch_version() {
  return TORCH_VERSION;
}

std::string version() {
  return ESPALIER_VERSION;
}

std::string git_commit() {
  // Empty where the sources came without their history.
  constexpr std::string_view kCommit = ESPALIER_GIT_COMMIT;
  return std::string(kCommit.empty() ? "unknown" : kCommit);
}

std::string version_text() {
  const CudaInfo cuda = query_cuda_versions();
  return fmt::format(
      "espalier {} (commit {})\ntorch {}\nCUDA {}", ESPALIER_VERSION, git_commit(), built_torch_version(),
      cuda.is_built ? cuda_version_text(cuda.runtime_version) : "none: built for the CPU only");
}

}  // namespace espalier::cli
