#include "bench/harness.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/peers.h"
#include "espalier/core/error.h"
#include "espalier/core/machine/cuda_info.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/core/machine/parallel.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::bench {
namespace {

double thread_cpu_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

// "AMD EPYC", as the system calls it; "CPU" where it does not say.
std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin != line.npos) return line.substr(begin);
  }
  return "CPU";
}

}  // namespace

std::string card_text(c10::Device device) {
  if (device.is_cpu()) return processor_name();
  const CudaInfo info = query_cuda();
  const auto index = static_cast<size_t>(device.index());
  return index < info.devices.size() ? info.devices[index].name : device.str();
}

std::string machine_text(c10::Device device) {
  if (device.is_cpu())
    return fmt::format("{}, {} core{}", card_text(device), num_cores(), num_cores() == 1 ? "" : "s");
  const CudaInfo info = query_cuda_versions();
  return fmt::format("{}, CUDA {}, driver for {}", card_text(device), cuda_version_text(info.runtime_version),
                     cuda_version_text(info.driver_version));
}

std::string now_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

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
      options_(options) {}

void Report::add(const Case& result) {
  cases_.push_back(result);
  add_line({{"case", result.name},
            {"shapes", result.shapes},
            {"median_us", result.timing.median_us},
            {"best_us", result.timing.best_us},
            {"host_us", result.timing.host_us},
            {"floor_us", result.floor_us},
            {"note", result.note},
            {"checked", result.checked}});
}

void Report::add_line(const nlohmann::ordered_json& line) const {
  if (options_.json.empty()) return;
  nlohmann::ordered_json whole{{"workload", workload_}};
  whole.update(line);
  whole.update({{"machine", machine_}, {"commit", commit_}, {"time", now_text()}});
  std::ofstream out(options_.json, std::ios::app);
  out << whole.dump() << '\n';
  if (!out) fail("--json '{}': cannot write", options_.json);
}

void Report::add_peers(const std::vector<std::string>& scripts, std::vector<std::string> arguments) {
  if (options_.smoke) arguments.push_back("--smoke");
  const PeerResults results = run_peers({.workload = workload_,
                                         .scripts = scripts,
                                         .arguments = std::move(arguments),
                                         .folder = options_.peer_dir});
  for (const Case& peer : results.cases) add(peer);
  problems_.insert(problems_.end(), results.problems.begin(), results.problems.end());
}

std::string Report::text() const {
  watch::Table table({"case", "shapes", ">median us", ">best us", ">host us", ">of floor", ">times", "note"});
  for (const Case& result : cases_) {
    const std::string share =
        result.floor_us > 0 ? fmt::format("{:.0f} %", 100 * result.floor_us / result.timing.median_us) : "";
    // Against the first case of the same shapes.
    const auto& base = *std::ranges::find(cases_, result.shapes, &Case::shapes);
    table.add_row({result.name, result.shapes, fmt::format("{:.1f}", result.timing.median_us),
                   fmt::format("{:.1f}", result.timing.best_us),
                   result.timing.host_us > 0 ? fmt::format("{:.1f}", result.timing.host_us) : "", share,
                   fmt::format("{:.2f}", result.timing.median_us / base.timing.median_us), result.note});
  }
  std::string text =
      fmt::format("{} on {}, {}, commit {}\n{}", workload_, machine_, now_text(), commit_, table.text());
  for (const std::string& problem : problems_) text += fmt::format("peers: {}\n", problem);
  return text;
}

}  // namespace espalier::bench
