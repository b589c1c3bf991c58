// How this process was started: by itself, or as one of several that work on one job. Those are started by
// `python -m espalier` (python/espalier), which enters the program as a library.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace espalier::cli {

struct Launch {
  int64_t rank = 0;
  int64_t local_rank = 0;  // on its machine
  int64_t size = 1;
  std::string store_address = {};  // "host:port", where c10d keeps its store
  bool agent_keeps_store = false;  // torchrun's agent does, and not rank 0
  // Makes the process group, once a job wants one, and returns the name by which c10d knows it; fails with
  // one sentence. backend: as torch.distributed names it, or auto.
  std::function<std::string(const std::string& backend, double limit_seconds)> join = {};
};

}  // namespace espalier::cli
