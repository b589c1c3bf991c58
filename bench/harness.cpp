#include "bench/harness.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/machine/child_process.h"
#include "espalier/core/machine/cuda_info.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/core/machine/parallel.h"
#include "espalier/core/machine/torch_python.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::bench {
namespace {

namespace fs = std::filesystem;

double thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

std::string machine_text(c10::Device device) {
  if (device.is_cpu()) return fmt::format("CPU, {} core(s)", num_cores());
  const CudaInfo info = query_cuda();
  const auto index = static_cast<size_t>(device.index());
  return index < info.devices.size()
             ? fmt::format("{}, CUDA {}, driver for {}", info.devices[index].name,
                           cuda_version_text(info.runtime_version), cuda_version_text(info.driver_version))
             : device.str();
}

std::string now_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// bench/peers beside the program or above it: in the checkout it lies two folders up from build/release.
fs::path peers_folder() {
  std::error_code code;
  fs::path folder = fs::read_symlink("/proc/self/exe", code).parent_path();
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path())
    if (fs::exists(folder / "bench" / "peers", code)) return folder / "bench" / "peers";
  return {};
}

// Why a script failed, on one line: its own {"problem": ...}, or the last line that it wrote to standard
// error, which in Python names the error.
std::string reason_in(const std::string& errors) {
  std::string last;
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("problem") && json["problem"].is_string()) return json["problem"];
    if (line.find_first_not_of(" \t\r") != line.npos) last = line;
  }
  constexpr size_t kLongest = 300;
  if (last.empty()) return "it said nothing";
  return last.size() > kLongest ? last.substr(0, kLongest) + " ..." : last;
}

}  // namespace

Timing time_calls(c10::Device device, const TimingPlan& plan, const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  const c10::impl::VirtualGuardImpl guard(device.type());
  const bool on_gpu = !device.is_cpu();
  for (int i = 0; i < plan.warm_up; ++i) {
    throw_if_interrupted();
    body();
  }
  if (on_gpu) guard.synchronizeDevice(device.index());
  std::vector<double> times;
  double host_us = 0;
  for (int sample = 0; sample < plan.samples; ++sample) {
    throw_if_interrupted();
    c10::Event begin(device.type(), c10::EventFlag::BACKEND_DEFAULT),
        end(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    if (on_gpu) begin.record(guard.getStream(device));
    const auto started = Clock::now();
    const double cpu = thread_cpu_us();
    for (int call = 0; call < plan.calls; ++call) body();
    host_us += thread_cpu_us() - cpu;
    if (on_gpu) {
      end.record(guard.getStream(device));
      end.synchronize();
      times.push_back(begin.elapsedTime(end) * 1e3 / plan.calls);
    } else {
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - started).count() / plan.calls);
    }
  }
  std::ranges::sort(times);
  return {times[times.size() / 2], times.front(), host_us / (plan.samples * plan.calls)};
}

Report::Report(std::string workload, c10::Device device, std::string commit, const BenchOptions& options)
    : workload_(std::move(workload)),
      machine_(machine_text(device)),
      commit_(std::move(commit)),
      json_file_(options.json) {}

void Report::add(const Case& result) {
  cases_.push_back(result);
  if (json_file_.empty()) return;
  std::ofstream out(json_file_, std::ios::app);
  nlohmann::ordered_json line{{"workload", workload_},
                              {"case", result.name},
                              {"shapes", result.shapes},
                              {"median_us", result.timing.median_us},
                              {"best_us", result.timing.best_us},
                              {"host_us", result.timing.host_us},
                              {"floor_us", result.floor_us},
                              {"note", result.note},
                              {"machine", machine_},
                              {"commit", commit_},
                              {"time", now_text()}};
  out << line.dump() << '\n';
  if (!out) fail("--json '{}': cannot write", json_file_);
}

std::string Report::text() const {
  watch::Table table({"case", "shapes", ">median us", ">best us", ">host us", ">of floor", ">times", "note"});
  for (const Case& result : cases_) {
    const std::string share =
        result.floor_us > 0 ? fmt::format("{:.0f} %", 100 * result.floor_us / result.timing.median_us) : "";
    // Against the first case of the same shapes.
    const auto& base = *std::ranges::find(cases_, result.shapes, &Case::shapes);
    table.add_row({result.name, result.shapes, fmt::format("{:.1f}", result.timing.median_us),
                   fmt::format("{:.1f}", result.timing.best_us), fmt::format("{:.1f}", result.timing.host_us),
                   share, fmt::format("{:.2f}", result.timing.median_us / base.timing.median_us),
                   result.note});
  }
  return fmt::format("{} on {}, {}, commit {}\n{}", workload_, machine_, now_text(), commit_, table.text());
}

std::vector<Case> run_peers(const std::string& script, const std::vector<std::string>& arguments,
                            std::string* problem) {
  const fs::path folder = peers_folder();
  if (folder.empty() || !fs::exists(folder / script)) {
    *problem = fmt::format("bench/peers/{} is not beside this program", script);
    return {};
  }
  const auto python = find_torch_python();
  if (!python) {
    *problem = "no Python with torch was found";
    return {};
  }
  std::vector<std::string> command{python->program, (folder / script).string()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const ProgramOutput result = run_program(command);
  // What was measured before it failed counts.
  if (!result.succeeded) *problem = fmt::format("{} failed: {}", script, reason_in(result.errors));
  std::vector<Case> cases;
  std::istringstream lines(result.output);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    cases.push_back(
        {.name = json.value("name", ""),
         .shapes = json.value("shapes", ""),
         .timing = {json.value("median_us", 0.0), json.value("best_us", 0.0), json.value("host_us", 0.0)},
         .note = json.value("note", "")});
  }
  return cases;
}

}  // namespace espalier::bench
