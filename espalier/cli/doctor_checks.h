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
// Writes `size_bytes` into `folder`, or the nearest folder above it that exists, flushes and removes them.
Check check_disk(const std::string& folder, int64_t size_bytes);
Check check_python();

}  // namespace espalier::cli
