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

#include "espalier/core/machine/device_name.h"
#include "espalier/core/progress.h"
#include "espalier/data/sources/host_dataset.h"
#include "espalier/tensor/layout.h"

namespace espalier::data {

// What the device keeps: the source's own integers, or normalised values.
enum class Stored : uint8_t { kAsSource, kFloat32, kBFloat16 };
// Where the data stays; kAuto: on the device if it fits.
enum class WantedResidency : uint8_t { kAuto, kDevice, kHost };

struct ResidentConfig {
  int64_t validation = -1;  // training samples to set aside; -1: a tenth, or the source's own split
  uint64_t validation_seed = 0;
  Stored store = Stored::kAsSource;
  MemoryFormat memory_format = MemoryFormat::kChannelsLast;  // kContiguous is there for comparison
  WantedResidency residency = WantedResidency::kAuto;
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

// Samples that `validation` sets aside of a training split.
int64_t num_validation(const ResidentConfig& options, int64_t num_train);

// Bytes that the dataset will take where it stays; the largest int64 where that is more than 63 bits hold.
int64_t resident_bytes(const HostDataset& dataset, const ResidentConfig& options);

// Device or host: what the options say, or, for auto, what leaves a fifth of the device's free memory for the
// rest.
Residency choose_residency(const ResidentConfig& options, int64_t bytes, c10::Device device);

std::shared_ptr<const ResidentDataset> make_resident(const HostDataset& dataset,
                                                     const ResidentConfig& options, c10::Device device,
                                                     const Progress& progress);

}  // namespace espalier::data
