// The resident dataset: loaded once, kept on its device in the layout that the kernels want.
//
// Kept true: per split, each field is ONE tensor [N,C,H,W] with channels-last strides (or contiguous ones,
// for comparison), of the source's own uint8 or uint16, a quarter of fp32's memory, unless `store` asks
// otherwise; normalising and casting happen in the gather. Device memory never holds two copies of a split
// while it loads.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "espalier/core/device_name.h"
#include "espalier/core/layout.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/data/sources/host_dataset.h"

namespace espalier::data {

struct ResidentOptions {
  int64_t validation = -1;
  uint64_t validation_seed = 0;
  std::string store = "source";
  std::string memory_format = "channels_last";
  std::string residency = "auto";

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "validation",
       .help = "training samples to set aside for every decision made during training; -1: a tenth",
       .low = -1,
       .high = 1e15},
      validation);
    v({.name = "validation-seed", .help = "chooses the samples that are set aside"}, validation_seed);
    v({.name = "store",
       .help = "what the device keeps: the source's own integers, or normalised values",
       .choices = {"source", "float32", "bfloat16"}},
      store);
    v({.name = "memory-format",
       .help = "layout of dataset, batches and weights; contiguous (NCHW) is there for comparison",
       .choices = {"channels_last", "contiguous"}},
      memory_format);
    v({.name = "residency",
       .help = "where the data stays: on the device, in pinned host memory, or wherever it fits",
       .choices = {"auto", "device", "host"}},
      residency);
  }

  MemoryFormat format() const {
    return memory_format == "contiguous" ? MemoryFormat::kContiguous : MemoryFormat::kChannelsLast;
  }
};

struct ResidentField {
  FieldSpec spec;
  FieldStatistics statistics;
  at::Tensor values;  // [N,C,H,W] u8|u16|f32|bf16 cl, on the device or pinned
  at::Tensor affine;  // [2,C] f32 device: value * affine[0] + affine[1] is normalised
};

struct ResidentSplit {
  std::vector<ResidentField> fields;
  at::Tensor labels;  // [N] i64 device

  int64_t num_samples() const { return labels.numel(); }
  int64_t bytes() const;
};

enum class Split { kTrain, kValidation, kTest };
enum class Residency { kDevice, kHost };

struct ResidentDataset {
  std::string origin;
  std::vector<std::string> class_names;
  c10::Device device = c10::kCPU;
  Residency residency = Residency::kDevice;
  MemoryFormat format = MemoryFormat::kChannelsLast;
  ResidentSplit train;
  ResidentSplit validation;
  ResidentSplit test;

  int64_t num_classes() const { return static_cast<int64_t>(class_names.size()); }
  const ResidentSplit& split(Split which) const;
  int64_t bytes() const { return train.bytes() + validation.bytes() + test.bytes(); }
};

// The device that a user's text means: auto is the first GPU, or the CPU where there is none. Fails for a GPU
// that the machine has not.
DeviceName choose_device(const std::string& text);

// The torch device of a name; fails for a GPU that the machine has not.
c10::Device torch_device(const DeviceName& name);
int num_cuda_devices();

// Samples that `validation` sets aside of a training split.
int64_t num_validation(const ResidentOptions& options, int64_t num_train);

// Bytes that the dataset will take where it stays.
int64_t resident_bytes(const HostDataset& dataset, const ResidentOptions& options);

// Device or host: what the options say, or, for auto, what leaves a fifth of the device's free memory for the
// rest.
Residency choose_residency(const ResidentOptions& options, int64_t bytes, c10::Device device);

std::shared_ptr<const ResidentDataset> make_resident(const HostDataset& dataset,
                                                     const ResidentOptions& options, c10::Device device,
                                                     const Progress& progress);

}  // namespace espalier::data
