#include "espalier/core/machine/torch_python.h"

#include <link.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "espalier/core/machine/child_process.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

// .../lib/python3.11/site-packages/torch/lib -> .../bin/python3; empty where torch is no Python package.
std::string python_of_torch(const std::string& library_folder) {
  fs::path folder = library_folder;
  while (folder.has_relative_path() && folder.filename() != "site-packages") folder = folder.parent_path();
  if (folder.filename() != "site-packages") return {};
  const fs::path program = folder.parent_path().parent_path().parent_path() / "bin" / "python3";
  std::error_code ignored;
  return fs::exists(program, ignored) ? program.string() : std::string{};
}

}  // namespace

std::string torch_library_folder() {
  std::string folder;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const std::string_view name = info->dlpi_name == nullptr ? "" : info->dlpi_name;
        if (name.find("libtorch_cpu.so") == name.npos) return 0;
        std::error_code error;
        const fs::path file = fs::weakly_canonical(fs::path(name), error);
        *static_cast<std::string*>(out) = (error ? fs::path(name) : file).parent_path().string();
        return 1;
      },
      &folder);
  return folder;
}

std::optional<TorchPython> find_torch_python() {
  const char* const named = std::getenv("ESPALIER_PYTHON");
  for (const std::string& program : {std::string(named == nullptr ? "" : named),
                                     python_of_torch(torch_library_folder()), std::string("python3")}) {
    if (program.empty()) continue;
    auto version =
        output_of({program, "-c", "import importlib.metadata as m; print(m.version('torch'), end='')"});
    if (version && !version->empty()) return TorchPython{program, *version};
  }
  return std::nullopt;
}

}  // namespace espalier
