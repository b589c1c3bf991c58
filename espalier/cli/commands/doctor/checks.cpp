#include "espalier/cli/commands/doctor/checks.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "espalier/cli/version.h"
#include "espalier/core/machine/cuda_info.h"
#include "espalier/core/machine/parallel.h"
#include "espalier/core/machine/torch_python.h"
#include "espalier/core/text/byte_size.h"

namespace espalier::cli {
namespace {

// torch_cuda puts its hooks into this registry when it is loaded, GPU or not.
bool is_torch_cuda_loaded() {
  return at::CUDAHooksRegistry()->Has("CUDAHooks");
}

// 91900 -> "9.19.0"; versions before 9 had a shorter number.
std::string cudnn_version_text(int64_t version) {
  const int64_t major = version >= 90000 ? 10000 : 1000;
  return fmt::format("{}.{}.{}", version / major, version % major / 100, version % 100);
}

Check check_driver(const CudaInfo& cuda) {
  Check check{.name = "driver"};
  if (cuda.driver_version == 0) {
    check.health = Health::kNote;
    check.found = "no NVIDIA driver: everything runs on the CPU";
    check.remedy = fmt::format("to use a GPU, install a driver that serves CUDA {}, and reboot",
                               cuda_version_text(cuda.runtime_version));
    return check;
  }
  check.found = fmt::format("serves CUDA up to {}", cuda_version_text(cuda.driver_version));
  // Within one major version an older driver still works.
  if (cuda.driver_version / 1000 < cuda.runtime_version / 1000) {
    check.health = Health::kBroken;
    check.remedy =
        fmt::format("too old: install one that serves CUDA {}, or a torch built for CUDA {}",
                    cuda_version_text(cuda.runtime_version), cuda_version_text(cuda.driver_version));
  }
  return check;
}

Check check_device(const CudaDeviceInfo& device, size_t index) {
  Check check{.name = fmt::format("cuda:{}", index)};
  check.found = fmt::format("{}, compute capability {}.{}, {} multiprocessors, {} of {} free", device.name,
                            device.major, device.minor, device.num_multiprocessors,
                            format_byte_size(device.free_bytes), format_byte_size(device.total_bytes));
  if (!device.problem.empty()) {
    check.health = Health::kBroken;
    check.found =
        fmt::format("{}: {}", device.name.empty() ? "cannot be opened" : device.name, device.problem);
    check.remedy = "see nvidia-smi for what holds it, or leave it out with CUDA_VISIBLE_DEVICES";
  } else if (device.major < 7) {
    check.health = Health::kNote;
    check.remedy = "too old for tensor cores: it will be slow; compute capability 7.0 or newer has them";
  } else if (device.major < 8) {
    check.health = Health::kNote;
    check.remedy = "no bf16 on this card: choose fp16 or fp32; compute capability 8.0 or newer has it";
  } else if (device.free_bytes < device.total_bytes / 2) {
    check.health = Health::kNote;
    check.remedy = "more than half of its memory is taken: see nvidia-smi for what holds it";
  }
  return check;
}

Check broken_disk(const std::string& folder, const char* doing) {
  return {.health = Health::kBroken,
          .name = "disk",
          .found = fmt::format("cannot {} in {}: {}", doing, folder, std::strerror(errno)),
          .remedy = "free some space, or give a directory that can be written with --run-dir"};
}

}  // namespace

std::vector<Check> check_torch() {
  std::vector<Check> checks;
  checks.push_back(
      {.name = "torch", .found = fmt::format("{} in {}", built_torch_version(), torch_library_folder())});
  const CudaInfo cuda = query_cuda_versions();
  if (!cuda.is_built) {
    checks.push_back(
        {.health = Health::kNote,
         .name = "torch_cuda",
         .found = "this torch was built without CUDA: everything runs on the CPU",
         .remedy = "to use a GPU, install a torch with CUDA (pip install torch) and build again"});
    return checks;
  }
  if (!is_torch_cuda_loaded()) {
    checks.push_back({.health = Health::kBroken,
                      .name = "torch_cuda",
                      .found = "not linked, although torch has it",
                      .remedy = "link with -Wl,--no-as-needed, so that the linker keeps libtorch_cuda.so"});
    return checks;
  }
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  checks.push_back({.name = "torch_cuda",
                    .found = fmt::format("linked, built with CUDA {}",
                                         cuda_version_text(static_cast<int>(hooks.versionCUDART())))});
  Check runtime{.name = "runtime", .found = fmt::format("CUDA {}", cuda_version_text(cuda.runtime_version))};
  if (cuda.runtime_version / 1000 != hooks.versionCUDART() / 1000) {
    runtime.health = Health::kBroken;
    runtime.remedy = "another CUDA than torch's: take the other libcudart out of LD_LIBRARY_PATH";
  }
  checks.push_back(runtime);
  if (hooks.compiledWithCuDNN()) {
    checks.push_back({.name = "cudnn", .found = cudnn_version_text(hooks.versionRuntimeCuDNN())});
  } else {
    checks.push_back({.health = Health::kNote,
                      .name = "cudnn",
                      .found = "this torch was built without cuDNN",
                      .remedy = "convolutions will be slow: install a torch with cuDNN"});
  }
  return checks;
}

std::vector<Check> check_gpus() {
  const CudaInfo cuda = query_cuda();
  if (!cuda.is_built) return {};
  std::vector<Check> checks = {check_driver(cuda)};
  if (checks.front().health != Health::kOk) return checks;
  if (cuda.devices.empty()) {
    checks.push_back(
        {.health = Health::kNote,
         .name = "devices",
         .found = fmt::format("no GPU{}{}", cuda.problem.empty() ? "" : ": ", cuda.problem),
         .remedy = "to use one, see whether nvidia-smi lists it and CUDA_VISIBLE_DEVICES hides it"});
  } else if (!at::detail::getCUDAHooks().hasCUDA()) {
    checks.push_back(
        {.health = Health::kBroken,
         .name = "devices",
         .found = "CUDA sees a GPU, but torch does not",
         .remedy = "see whether the torch in LD_LIBRARY_PATH is the one this program was built with"});
  }
  for (size_t i = 0; i < cuda.devices.size(); ++i) checks.push_back(check_device(cuda.devices[i], i));
  return checks;
}

std::vector<Check> check_determinism() {
  const char* const value = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  const std::string workspace = value == nullptr ? "" : value;
  Check cublas{.name = "cublas", .found = fmt::format("CUBLAS_WORKSPACE_CONFIG={}", workspace)};
  // The two values for which cuBLAS promises the same bits in every run.
  if (workspace != ":4096:8" && workspace != ":16:8") {
    cublas.health = Health::kNote;
    cublas.remedy = "results may differ from run to run: unset it, and the program sets :4096:8 itself";
  }
  const at::Context& torch = at::globalContext();
  const auto on = [](bool is_on) { return is_on ? "on" : "off"; };
  Check choices{
      .name = "choices",
      .found = fmt::format("cuDNN benchmark {}, cuDNN deterministic {}, deterministic algorithms {}",
                           on(torch.benchmarkCuDNN()), on(torch.deterministicCuDNN()),
                           on(torch.deterministicAlgorithms()))};
  if (torch.benchmarkCuDNN()) {
    choices.health = Health::kNote;
    choices.remedy =
        "algorithms are chosen by timing, so results may differ from run to run: use --deterministic";
  }
  return {cublas, choices};
}

Check check_cpu() {
  Check check{.name = "cpu",
              .found = fmt::format("{} cores, {} threads in torch, {}", num_cores(), at::get_num_threads(),
                                   at::get_cpu_capability())};
  if (at::get_num_threads() > num_cores()) {
    check.health = Health::kNote;
    check.remedy = fmt::format("more threads than cores: give --threads {}, or set OMP_NUM_THREADS={}",
                               num_cores(), num_cores());
  }
  return check;
}

Check check_load(double load, int cores) {
  Check check{.name = "load",
              .found = fmt::format("{:.1f} processes want {} cores, over the last minute", load, cores)};
  // One more than the cores is what a lone build or a run of ours looks like.
  if (load > cores + 1) {
    check.health = Health::kNote;
    check.remedy = fmt::format(
        "oversubscribed: times mean little now, and training on the CPU is slow; wait for the "
        "others, or leave them cores with --threads {}",
        std::max(1, cores / 2));
  }
  return check;
}

Check check_load() {
  double load = 0;
  if (getloadavg(&load, 1) != 1) return {.name = "load", .found = "this system does not say"};
  return check_load(load, num_cores());
}

Check check_openmp() {
  const auto shown = [](const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string() : fmt::format(" {}={}", name, value);
  };
  const std::string settings = shown("OMP_WAIT_POLICY") + shown("GOMP_SPINCOUNT") + shown("OMP_NUM_THREADS") +
                               shown("MKL_NUM_THREADS");
  Check check{.name = "openmp", .found = settings.empty() ? "no settings" : settings.substr(1)};
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  const char* const spins = std::getenv("GOMP_SPINCOUNT");
  if (spins == nullptr && (policy == nullptr || strcasecmp(policy, "passive") != 0)) {
    check.health = Health::kNote;
    check.remedy =
        "idle threads spin, and take the cores from whatever else runs: unset OMP_WAIT_POLICY, and the "
        "program lets them sleep soon";
  }
  return check;
}

Check check_disk(const std::string& folder, int64_t size_bytes) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path place = fs::weakly_canonical(fs::absolute(folder, error), error);
  while (!fs::is_directory(place, error) && place.has_relative_path()) place = place.parent_path();
  std::string name = (place / ".espalier-doctor-XXXXXX").string();
  const int file = mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) return broken_disk(place.string(), "create a file");
  unlink(name.c_str());  // at once: nothing stays behind, however this ends

  // Not zeros, which some file systems do not store.
  std::string block(1 << 20, '\0');
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<char>(i * 2654435761U >> 13);
  const auto begin = std::chrono::steady_clock::now();
  int64_t done_bytes = 0;
  bool is_written = true;
  while (is_written && done_bytes < size_bytes) {
    const ssize_t count = write(file, block.data(), block.size());
    is_written = count > 0 || (count < 0 && errno == EINTR);
    if (count > 0) done_bytes += count;
  }
  is_written = is_written && fsync(file) == 0;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Check failed = is_written ? Check{} : broken_disk(place.string(), "write");
  close(file);
  if (!is_written) return failed;

  const double speed = static_cast<double>(done_bytes) / seconds;
  Check check{
      .name = "disk",
      .found = fmt::format("{}: {} written and flushed at {}/s", place.string(), format_byte_size(done_bytes),
                           format_byte_size(static_cast<int64_t>(speed)))};
  // A checkpoint of a hundred lanes is some 100 MB: below this it takes seconds.
  constexpr double kSlow = 30e6;
  if (speed < kSlow) {
    check.health = Health::kNote;
    check.remedy = "slow: put the run directory on a local disk (--run-dir), or write fewer checkpoints";
  }
  return check;
}

Check check_python() {
  const auto python = find_torch_python();
  if (python)
    return {.name = "python",
            .found = fmt::format("{} with torch {}", python->program, python->torch_version)};
  return {
      .health = Health::kNote,
      .name = "python",
      .found = "no Python with torch",
      .remedy = "only the PyTorch side of benchmarks needs it: set ESPALIER_PYTHON to one that has torch"};
}

}  // namespace espalier::cli
