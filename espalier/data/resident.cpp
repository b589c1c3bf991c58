#include "espalier/data/resident.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/machine/device_memory.h"
#include "espalier/core/size_product.h"
#include "espalier/data/plan.h"
#include "espalier/tensor/parallel.h"
#include "espalier/tensor/pinned.h"

namespace espalier::data {
namespace {

at::ScalarType stored_type(const ResidentConfig& options, SampleType source) {
  if (options.store == Stored::kFloat32) return at::kFloat;
  if (options.store == Stored::kBFloat16) return at::kBFloat16;
  return source == SampleType::kU8 ? at::kByte : at::kUInt16;
}

// value * scale + shift == (value / full - mean) / stddev. A constant channel is shifted only.
at::Tensor affine_of(const FieldSpec& spec, const FieldStatistics& statistics) {
  const double full = spec.type == SampleType::kU8 ? 255.0 : 65535.0;
  at::Tensor affine = at::empty({2, spec.channels}, at::kFloat);
  auto* values = affine.mutable_data_ptr<float>();
  for (int64_t c = 0; c < spec.channels; ++c) {
    const double stddev = statistics.stddev[static_cast<size_t>(c)];
    const double unit = stddev > 0 ? stddev : 1.0;
    values[c] = static_cast<float>(1.0 / (full * unit));
    values[spec.channels + c] = static_cast<float>(-statistics.mean[static_cast<size_t>(c)] / unit);
  }
  return affine;
}

// Writes one sample, [H,W,C] as the source has it, in the stored type and layout.
template <class In, class Out>
void convert_sample(const std::byte* from, void* to, const FieldSpec& spec, const float* affine,
                    bool planar) {
  const auto* in = reinterpret_cast<const In*>(from);
  auto* out = static_cast<Out*>(to);
  const int64_t pixels = spec.height * spec.width, channels = spec.channels;
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t c = 0; c < channels; ++c) {
      Out& target = out[planar ? c * pixels + p : p * channels + c];
      const In value = in[p * channels + c];
      if constexpr (std::is_integral_v<Out>) {
        target = value;
      } else {
        // The gather's own arithmetic, so that storing first changes nothing.
        target = static_cast<Out>(std::fma(static_cast<float>(value), affine[c], affine[channels + c]));
      }
    }
  }
}

class FieldWriter {
 public:
  FieldWriter(const HostField& field, at::ScalarType type, MemoryFormat format, const at::Tensor& affine)
      : field_(field),
        affine_(affine.const_data_ptr<float>()),
        planar_(format == MemoryFormat::kContiguous && field.spec.channels > 1),
        type_(type),
        sample_bytes_(field.spec.height * field.spec.width * field.spec.channels *
                      static_cast<int64_t>(c10::elementSize(type))) {}

  int64_t sample_bytes() const { return sample_bytes_; }
  // Whether the source's bytes are already what is stored.
  bool is_copy() const { return !planar_ && at::isIntegralType(type_, false); }

  // Samples rows[begin, end) into consecutive places at `to`.
  void write(const std::vector<int64_t>& rows, int64_t begin, int64_t end, std::byte* to) const {
    const int64_t grain = std::max<int64_t>(1, kThreadValues / std::max<int64_t>(1, sample_bytes_));
    parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const std::byte* from =
            field_.values.get() + rows[static_cast<size_t>(i)] * field_.spec.bytes_per_sample();
        write_sample(from, to + (i - begin) * sample_bytes_);
      }
    });
  }

 private:
  void write_sample(const std::byte* from, std::byte* to) const {
    const FieldSpec& spec = field_.spec;
    const bool bytes = spec.type == SampleType::kU8;
    if (is_copy()) {
      std::memcpy(to, from, static_cast<size_t>(sample_bytes_));
    } else if (type_ == at::kByte) {
      convert_sample<uint8_t, uint8_t>(from, to, spec, affine_, planar_);
    } else if (type_ == at::kUInt16) {
      convert_sample<uint16_t, uint16_t>(from, to, spec, affine_, planar_);
    } else if (type_ == at::kFloat) {
      bytes ? convert_sample<uint8_t, float>(from, to, spec, affine_, planar_)
            : convert_sample<uint16_t, float>(from, to, spec, affine_, planar_);
    } else {
      bytes ? convert_sample<uint8_t, c10::BFloat16>(from, to, spec, affine_, planar_)
            : convert_sample<uint16_t, c10::BFloat16>(from, to, spec, affine_, planar_);
    }
  }

  const HostField& field_;
  const float* affine_;  // [2,C] f32 host
  bool planar_;
  at::ScalarType type_;
  int64_t sample_bytes_;
};

// Fills a device tensor through two pinned buffers, one being filled while the other is copied: the device
// holds the final tensor and nothing else.
void upload(const FieldWriter& writer, const std::vector<int64_t>& rows, const at::Tensor& values,
            const std::function<void(int64_t)>& advance) {
  constexpr int64_t kStagingBytes =
      8 << 20;  // at 25 GB/s a copy of 0.3 ms: long against a launch, small in memory
  const c10::impl::VirtualGuardImpl device(values.device().type());
  const auto num_rows = static_cast<int64_t>(rows.size());
  const int64_t chunk = std::max<int64_t>(1, kStagingBytes / std::max<int64_t>(1, writer.sample_bytes()));
  const at::Tensor target =
      values.as_strided({num_rows, values.numel() / std::max<int64_t>(1, num_rows)}, {values.stride(0), 1});
  std::array<at::Tensor, 2> staging;
  std::array<std::unique_ptr<c10::Event>, 2> copied;
  for (int64_t begin = 0, turn = 0; begin < num_rows; begin += chunk, turn ^= 1) {
    const int64_t end = std::min(num_rows, begin + chunk);
    at::Tensor& buffer = staging[static_cast<size_t>(turn)];
    auto& event = copied[static_cast<size_t>(turn)];
    if (event) {
      event->synchronize();  // loading, not the steady state
    } else {
      buffer = at::empty({std::min(chunk, num_rows), target.size(1)},
                         at::TensorOptions(values.dtype()).pinned_memory(true));
      event = std::make_unique<c10::Event>(values.device().type());
    }
    writer.write(rows, begin, end, static_cast<std::byte*>(buffer.mutable_data_ptr()));
    target.slice(0, begin, end).copy_(buffer.slice(0, 0, end - begin), /*non_blocking=*/true);
    event->record(device.getStream(values.device()));
    advance(end - begin);
  }
}

at::Tensor place_field(const HostField& field, const FieldWriter& writer, const std::vector<int64_t>& rows,
                       bool whole, at::ScalarType type, MemoryFormat format, c10::Device device,
                       Residency residency, const std::function<void(int64_t)>& advance) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  const std::array<int64_t, 4> sizes{num_rows, field.spec.channels, field.spec.height, field.spec.width};
  const bool on_host = device.is_cpu() || residency == Residency::kHost;
  if (device.is_cpu() && whole && writer.is_copy() && num_rows > 0) {
    // The source's memory, or its file mapping, serves as it is.
    const int64_t c = sizes[1], w = sizes[3], sample = c * sizes[2] * w;
    advance(num_rows);
    return at::from_blob(
        const_cast<std::byte*>(field.values.get()), sizes, {sample, 1, w * c, c},
        [keep = field.values](void*) {}, at::TensorOptions(type));
  }
  at::Tensor values =
      empty_images(sizes, format, at::TensorOptions(type).device(on_host ? c10::kCPU : device));
  if (!on_host) {
    upload(writer, rows, values, advance);
    return values;
  }
  constexpr int64_t kRowsPerReport = 4096;
  for (int64_t begin = 0; begin < num_rows; begin += kRowsPerReport) {
    const int64_t end = std::min(num_rows, begin + kRowsPerReport);
    writer.write(rows, begin, end,
                 static_cast<std::byte*>(values.mutable_data_ptr()) + begin * writer.sample_bytes());
    advance(end - begin);
  }
  return device.is_cpu() ? values : pin_in_place(values);
}

}  // namespace

int64_t ResidentSplit::bytes() const {
  int64_t bytes = static_cast<int64_t>(labels.nbytes());
  for (const ResidentField& field : fields) bytes += static_cast<int64_t>(field.values.nbytes());
  return bytes;
}

const ResidentSplit& ResidentDataset::split(Split which) const {
  return which == Split::kTrain ? train : which == Split::kValidation ? validation : test;
}

int64_t num_validation(const ResidentConfig& options, int64_t num_train) {
  return options.validation < 0 ? num_train / 10 : options.validation;
}

int64_t resident_bytes(const HostDataset& dataset, const ResidentConfig& options) {
  const int64_t samples =
      dataset.train.num_samples() + dataset.validation.num_samples() + dataset.test.num_samples();
  int64_t bytes = saturated_product({samples, static_cast<int64_t>(sizeof(int64_t))});
  for (const HostField& field : dataset.train.fields) {
    const auto value_bytes = static_cast<int64_t>(c10::elementSize(stored_type(options, field.spec.type)));
    bytes = saturated_sum(bytes, saturated_product({samples, field.spec.height, field.spec.width,
                                                    field.spec.channels, value_bytes}));
  }
  return bytes;
}

Residency choose_residency(const ResidentConfig& options, int64_t bytes, c10::Device device) {
  if (device.is_cpu() || options.residency == WantedResidency::kDevice) return Residency::kDevice;
  if (options.residency == WantedResidency::kHost) return Residency::kHost;
  const auto memory = cuda_memory(device.index());
  return memory && bytes > memory->free_bytes / 5 * 4 ? Residency::kHost : Residency::kDevice;
}

std::shared_ptr<const ResidentDataset> make_resident(const HostDataset& dataset,
                                                     const ResidentConfig& options, c10::Device device,
                                                     const Progress& progress) {
  // Sources check what they load; a dataset may come from anywhere, and from here on its lengths are trusted.
  check_dataset(dataset);
  if (resident_bytes(dataset, options) == kTooLarge)
    fail("dataset '{}': {} train and {} test samples stored as {} do not fit in memory", dataset.origin,
         dataset.train.num_samples(), dataset.test.num_samples(),
         options.store == Stored::kAsSource  ? "the source's integers"
         : options.store == Stored::kFloat32 ? "float32"
                                             : "bfloat16");
  auto resident = std::make_shared<ResidentDataset>();
  resident->origin = dataset.origin;
  resident->class_names = dataset.class_names;
  resident->device = device;
  resident->format = options.memory_format;
  resident->residency = choose_residency(options, resident_bytes(dataset, options), device);

  if (dataset.has_validation() && options.validation >= 0)
    fail_usage("--validation {}: '{}' has a validation split of its own, of {} samples: leave the flag out",
               options.validation, dataset.origin, dataset.validation.num_samples());
  const int64_t num_train = dataset.train.num_samples();
  const std::vector<int64_t> validation =
      dataset.has_validation()
          ? std::vector<int64_t>{}
          : validation_samples(num_train, num_validation(options, num_train), options.validation_seed);
  std::vector<int64_t> train;
  train.reserve(static_cast<size_t>(num_train) - validation.size());
  for (int64_t i = 0, next = 0; i < num_train; ++i) {
    if (next < static_cast<int64_t>(validation.size()) && validation[static_cast<size_t>(next)] == i) {
      ++next;
    } else {
      train.push_back(i);
    }
  }
  std::vector<int64_t> test(static_cast<size_t>(dataset.test.num_samples()));
  std::iota(test.begin(), test.end(), 0);

  std::vector<int64_t> own(static_cast<size_t>(dataset.validation.num_samples()));
  std::iota(own.begin(), own.end(), 0);

  const int64_t total = (num_train + dataset.validation.num_samples() + dataset.test.num_samples()) *
                        static_cast<int64_t>(dataset.train.fields.size());
  int64_t done = 0;
  const auto advance = [&](int64_t samples) {
    done += samples;
    if (progress) progress("placing data", done, total);
  };
  const auto place = [&](const HostSplit& split, const std::vector<int64_t>& rows, ResidentSplit& into) {
    for (size_t f = 0; f < split.fields.size(); ++f) {
      const HostField& field = split.fields[f];
      const at::Tensor affine = affine_of(field.spec, dataset.statistics[f]);
      const at::ScalarType type = stored_type(options, field.spec.type);
      const FieldWriter writer(field, type, resident->format, affine);
      const bool whole = static_cast<int64_t>(rows.size()) == split.num_samples();
      into.fields.push_back({field.spec, dataset.statistics[f],
                             place_field(field, writer, rows, whole, type, resident->format, device,
                                         resident->residency, advance),
                             affine.to(device)});
    }
    at::Tensor labels = at::empty({static_cast<int64_t>(rows.size())}, at::kLong);
    for (size_t i = 0; i < rows.size(); ++i)
      labels.mutable_data_ptr<int64_t>()[i] = split.labels[static_cast<size_t>(rows[i])];
    into.labels = labels.to(device);
  };
  place(dataset.train, train, resident->train);
  if (dataset.has_validation())
    place(dataset.validation, own, resident->validation);
  else
    place(dataset.train, validation, resident->validation);
  place(dataset.test, test, resident->test);
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
  return resident;
}

}  // namespace espalier::data
