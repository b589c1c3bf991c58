// The program as a library, for `python -m espalier`: one entry, and what must be known before it; plain C.
#include <torch/headeronly/version.h>

#include <string>
#include <vector>

#include "espalier/cli/program.h"
#include "espalier/core/error.h"

extern "C" {

// Makes the process group. Writes its name into `text` and returns 0, or why there is none and returns 1.
using EspalierJoin = int (*)(const char* backend, double limit_seconds, char* text, int capacity);

struct EspalierLaunch {
  int rank;
  int local_rank;
  int size;
  int agent_keeps_store;
  const char* store_address;
  EspalierJoin join;
};

// The torch whose headers the library was built with: "2.11.0".
__attribute__((visibility("default"))) const char* espalier_torch_version() {
  return TORCH_VERSION;
}

__attribute__((visibility("default"))) int espalier_main(int argc, char** argv,
                                                         const EspalierLaunch* launch) {
  constexpr int kTextBytes = 4096;
  espalier::cli::Launch how{.rank = launch->rank,
                            .local_rank = launch->local_rank,
                            .size = launch->size,
                            .store_address = launch->store_address,
                            .agent_keeps_store = launch->agent_keeps_store != 0};
  how.join = [join = launch->join](const std::string& backend, double limit_seconds) {
    std::vector<char> text(kTextBytes);
    const int code = join(backend.c_str(), limit_seconds, text.data(), kTextBytes);
    if (code != 0) espalier::fail("{}", text.data());
    return std::string(text.data());
  };
  return espalier::cli::run_program(argc, argv, how);
}

}  // extern "C"
