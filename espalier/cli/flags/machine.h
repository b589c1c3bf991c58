// Flags of the machine: where a job works, in what precision, by which algorithms.
#pragma once

#include <optional>
#include <vector>

#include "espalier/core/machine/device_name.h"
#include "espalier/core/options.h"
#include "espalier/core/shared_options.h"
#include "espalier/train/job_config.h"

namespace espalier::cli {

inline constexpr std::string_view kMachineFlags = "Machine";

// auto, or the name of a device. absent: how none is written.
TextMember device_member(std::optional<DeviceName>& member, std::string_view absent = "auto");
// auto, or names of devices with commas between.
TextMember devices_member(std::vector<DeviceName>& member);

// A job on one device.
template <class Visitor>
void visit_device(
    Visitor&& visitor, std::optional<DeviceName>& device,
    std::string_view help = "where to train: cpu, cuda, cuda:N, or auto: a GPU where there is one") {
  auto v = in_group(visitor, kMachineFlags);
  v(device_option(help), device_member(device));
}

// A job on several.
template <class Visitor>
void visit_devices(Visitor&& visitor, std::vector<DeviceName>& devices) {
  auto v = in_group(visitor, kMachineFlags);
  v({.name = "devices",
     .help = "where the networks live, in turn: cpu, cuda:0 or cuda:0,cuda:1; auto: a GPU where there is one",
     .placeholder = "LIST",
     .aliases = {{.name = "device"}}},
    devices_member(devices));
}

template <class Visitor>
void visit_precision(Visitor&& visitor, train::Precision& precision) {
  auto v = in_group(visitor, kMachineFlags);
  v(precision_option(
        "number format of computations; weights stay fp32; auto: bf16 on a GPU, fp32 on the CPU"),
    one_of(precision, train::precision_names()));
}

template <class Visitor>
void visit_machine(Visitor&& visitor, train::JobConfig& job) {
  visit_precision(visitor, job.precision);
  auto v = in_group(visitor, kMachineFlags);
  v({.name = "threads",
     .help = "threads per operator on the CPU; 0: as torch chooses, one per core or OMP_NUM_THREADS",
     .low = 0,
     .high = 4096},
    job.threads);
  v({.name = "graphs", .help = "on a GPU, capture steps once and replay them"}, job.graphs);
  v(deterministic_option(
        "the same bits in every run on one machine with one number of threads; nothing is chosen by timing"),
    job.deterministic);
  v({.name = "convolutions",
     .help = "convolutions.json of an earlier run: use the algorithms that were chosen there",
     .placeholder = "FILE"},
    job.convolutions);
  v({.name = "device-memory",
     .help = "most memory to allocate on a device, such as 20GiB; 0: no limit",
     .low = 0,
     .format = OptionFormat::kByteSize},
    job.device_memory);
}

}  // namespace espalier::cli
