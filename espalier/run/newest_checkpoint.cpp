#include "espalier/run/newest_checkpoint.h"

#include <fmt/format.h>

#include <vector>

#include "espalier/core/error.h"

namespace espalier::run {

std::shared_ptr<const Checkpoint> newest_checkpoint(const CheckpointFolder& folder,
                                                    const std::function<void(const std::string&)>& warn) {
  std::vector<std::string> names = folder.names();
  std::string error;
  for (; !names.empty(); names.pop_back()) {
    try {
      return std::make_shared<Checkpoint>(read_checkpoint(folder.path() / names.back()));
    } catch (const Error& damage) {
      error = damage.what();
      warn(fmt::format("{}; going back to the checkpoint before it", error));
    }
  }
  if (!error.empty())
    fail("run directory '{}': every checkpoint is damaged ({}); begin anew with --restart fresh",
         folder.path().parent_path().string(), error);
  return nullptr;
}

}  // namespace espalier::run
