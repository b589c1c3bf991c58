// Flags of the data: what is set aside, and how it stays; source.h has where it comes from.
#pragma once

#include "espalier/cli/flags/source.h"
#include "espalier/core/options.h"
#include "espalier/data/resident.h"

namespace espalier::cli {

template <class Visitor>
void visit_resident(Visitor&& visitor, data::ResidentConfig& resident) {
  using data::Stored;
  using data::WantedResidency;
  auto v = in_group(visitor, "Data");
  v({.name = "validation",
     .help = "training samples to set aside, which all decisions during training are based on; -1: the "
             "data's own validation split, or a tenth where it has none",
     .low = -1,
     .high = 1e15},
    resident.validation);
  v({.name = "validation-seed", .help = "seed that chooses the samples set aside"}, resident.validation_seed);
  v({.name = "store", .help = "what the device keeps: the source's own integers, or normalised values"},
    one_of(resident.store,
           {{"source", Stored::kAsSource}, {"float32", Stored::kFloat32}, {"bfloat16", Stored::kBFloat16}}));
  v({.name = "memory-format",
     .help = "layout of dataset, batches and weights; contiguous (NCHW) is there for comparison"},
    one_of(resident.memory_format,
           {{"channels_last", MemoryFormat::kChannelsLast}, {"contiguous", MemoryFormat::kContiguous}}));
  v({.name = "residency",
     .help = "where the data stays: on the device, in pinned host memory, or wherever it fits",
     .aliases = {{.name = "gpu-preload", .value = "device"}}},
    one_of(resident.residency, {{"auto", WantedResidency::kAuto},
                                {"device", WantedResidency::kDevice},
                                {"host", WantedResidency::kHost}}));
}

}  // namespace espalier::cli
