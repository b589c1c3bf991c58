// What `espalier doctor` looks at: each check is fine, or says what to do about it. They work without a GPU,
// without a driver and with a torch that has no CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::cli {

enum class Health : uint8_t {
  kOk,
  kNote,    // works, with less than it could
  kBroken,  // a run would fail
};

struct Check {
  Health health = Health::kOk;
  std::string name = {};    // "driver"
  std::string found = {};   // what there is
  std::string remedy = {};  // what to do about it; empty where all is well
};

std::vector<Check> check_torch();
std::vector<Check> check_gpus();
std::vector<Check> check_determinism();
Check check_cpu();
// load: processes that want a core, on average over the last minute.
Check check_load(double load, int cores);
Check check_load();
// How idle threads of OpenMP wait, and how many the environment asks for.
Check check_openmp();
// Writes `size_bytes` into `folder`, or the nearest folder above it that exists, flushes and removes them.
Check check_disk(const std::string& folder, int64_t size_bytes);
Check check_python();

}  // namespace espalier::cli
