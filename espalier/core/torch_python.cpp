#include "espalier/core/torch_python.h"

#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

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

std::optional<std::string> output_of(const std::vector<std::string>& command) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);

  std::string output;
  std::array<char, 4096> buffer{};
  while (failed == 0) {
    const ssize_t count = read(ends[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    output.append(buffer.data(), static_cast<size_t>(count));
  }
  close(ends[0]);
  if (failed != 0) return std::nullopt;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return output;
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
