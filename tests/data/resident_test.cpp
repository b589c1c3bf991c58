#include "espalier/data/resident.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/data/plan.h"
#include "tests/data/small_data.h"
#include "tests/support/message.h"
#include "tests/support/threads.h"

namespace espalier::data {
namespace {

using testing::image_spec;
using testing::small_dataset;

// Sample i of a host field as [C,H,W].
at::Tensor host_sample(const HostField& field, int64_t i) {
  const FieldSpec& spec = field.spec;
  const auto type = spec.type == SampleType::kU8 ? at::kByte : at::kUInt16;
  void* at = const_cast<std::byte*>(field.values.get() + i * spec.bytes_per_sample());
  return at::from_blob(at, {spec.height, spec.width, spec.channels}, type).to(at::kInt).permute({2, 0, 1});
}

TEST(ResidentDataset, TakesTheValidationSplitThatItsSourceHas) {
  HostDataset host = small_dataset({image_spec(4, 4, 1)}, 20, 5);
  host.validation = small_dataset({image_spec(4, 4, 1)}, 7, 1).train;
  const auto data = testing::resident(host, {});
  EXPECT_EQ(data->train.num_samples(), 20) << "nothing is set aside besides";
  EXPECT_EQ(data->validation.num_samples(), 7);
  for (int64_t i = 0; i < 7; ++i)
    EXPECT_TRUE(at::equal(data->validation.fields[0].values[i].to(at::kInt),
                          host_sample(host.validation.fields[0], i)));
  EXPECT_EQ(resident_bytes(host, {}), (20 + 7 + 5) * (16 + 8));
  EXPECT_ERROR(testing::resident(host, {.validation = 3}), UsageError, "--validation 3", "of its own",
               "7 samples");
}

TEST(ResidentDataset, KeepsChannelsLastIntegersForEveryField) {
  const HostDataset host = small_dataset({image_spec(5, 7, 3), {"depth", SampleType::kU16, 4, 3, 1}}, 40, 11);
  const auto data = testing::resident(host, {.validation = 8, .validation_seed = 3});
  EXPECT_EQ(data->train.num_samples(), 32);
  EXPECT_EQ(data->validation.num_samples(), 8);
  EXPECT_EQ(data->test.num_samples(), 11);
  for (const Split split : {Split::kTrain, Split::kValidation, Split::kTest}) {
    const ResidentSplit& part = data->split(split);
    EXPECT_EQ(part.fields[0].values.sizes().slice(1), at::IntArrayRef({3, 5, 7}));
    EXPECT_EQ(part.fields[0].values.strides(), at::IntArrayRef({105, 1, 21, 3}));
    EXPECT_EQ(part.fields[0].values.scalar_type(), at::kByte);
    EXPECT_EQ(part.fields[1].values.strides(), at::IntArrayRef({12, 1, 3, 1}));
    EXPECT_EQ(part.fields[1].values.scalar_type(), at::kUInt16);
    EXPECT_EQ(part.labels.scalar_type(), at::kLong);
  }
}

TEST(ResidentDataset, SetsValidationAsideAndKeepsFileOrderAndLabels) {
  const HostDataset host = small_dataset({image_spec(5, 7, 3)}, 40, 11);
  const auto data = testing::resident(host, {.validation = 8, .validation_seed = 3});
  const auto chosen = validation_samples(40, 8, 3);
  size_t next = 0;
  int64_t train = 0, validation = 0;
  for (int64_t i = 0; i < 40; ++i) {
    const bool aside = next < chosen.size() && chosen[next] == i;
    next += aside;
    const ResidentSplit& part = aside ? data->validation : data->train;
    const int64_t at = aside ? validation++ : train++;
    EXPECT_TRUE(at::equal(part.fields[0].values[at].to(at::kInt), host_sample(host.train.fields[0], i)));
    EXPECT_EQ(part.labels[at].item<int64_t>(), i % 10);
  }
}

TEST(ResidentDataset, SetsATenthAsideUnlessTold) {
  const auto data = testing::resident(small_dataset({image_spec(2, 2, 1)}, 40, 1), {});
  EXPECT_EQ(data->validation.num_samples(), 4);
  EXPECT_ERROR(testing::resident(small_dataset({image_spec(2, 2, 1)}, 40, 1), {.validation = 40}), UsageError,
               "40");
}

TEST(ResidentDataset, HoldsTheSameValuesInEveryLayoutAndType) {
  const HostDataset host = small_dataset({image_spec(5, 7, 3), {"depth", SampleType::kU16, 4, 3, 2}}, 20, 3);
  const auto plain = testing::resident(host);
  for (const MemoryFormat layout : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    for (const Stored store : {Stored::kAsSource, Stored::kFloat32, Stored::kBFloat16}) {
      ResidentConfig options{.validation = 0};
      options.memory_format = layout;
      options.store = store;
      const auto data = testing::resident(host, options);
      for (size_t f = 0; f < 2; ++f) {
        const at::Tensor& values = data->train.fields[f].values;
        EXPECT_TRUE(values.is_contiguous(torch_format(options.memory_format)));
        const ResidentField& field = plain->train.fields[f];
        const auto affine = field.affine.to(at::kDouble);
        const at::Tensor raw = field.values.to(at::kInt).to(at::kDouble);
        const at::Tensor want = options.store == Stored::kAsSource
                                    ? raw
                                    : raw * affine[0].view({1, -1, 1, 1}) + affine[1].view({1, -1, 1, 1});
        const at::Tensor rounded = options.store == Stored::kAsSource
                                       ? want
                                       : want.to(at::kFloat).to(values.scalar_type()).to(at::kDouble);
        EXPECT_TRUE(at::equal(
            values.to(options.store == Stored::kAsSource ? at::kInt : at::kDouble).to(at::kDouble), rounded));
      }
    }
  }
}

TEST(ResidentDataset, HoldsTheSameBitsOnAnyNumberOfThreads) {
  const HostDataset host =
      small_dataset({image_spec(16, 15, 3), {"depth", SampleType::kU16, 9, 8, 2}}, 700, 90);
  for (const MemoryFormat layout : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
    for (const Stored store : {Stored::kAsSource, Stored::kFloat32, Stored::kBFloat16})
      espalier::testing::expect_same_bits_on_any_threads([&] {
        ResidentConfig options{.validation = 170};
        options.memory_format = layout;
        options.store = store;
        const auto data = testing::resident(host, options);
        std::vector<at::Tensor> all;
        for (const ResidentSplit* split : {&data->train, &data->validation, &data->test})
          for (const ResidentField& field : split->fields) all.push_back(field.values);
        return all;
      });
}

TEST(ResidentDataset, NormalisesToZeroMeanAndUnitDeviation) {
  const auto data = testing::resident(small_dataset({image_spec(8, 8, 3)}, 200, 3));
  const ResidentField& field = data->train.fields[0];
  const at::Tensor normal =
      field.values.to(at::kDouble) * field.affine[0].view({1, 3, 1, 1}) + field.affine[1].view({1, 3, 1, 1});
  EXPECT_LT(normal.mean({0, 2, 3}).abs().max().item<double>(), 1e-5);
  EXPECT_LT((normal.std({0, 2, 3}) - 1).abs().max().item<double>(), 1e-3);
}

TEST(ResidentDataset, UsesTheSourcesOwnMemoryOnTheCpuWhereNothingChanges) {
  const HostDataset host = small_dataset({image_spec()}, 12, 5);
  const auto data = testing::resident(host);
  EXPECT_EQ(data->train.fields[0].values.const_data_ptr(), host.train.fields[0].values.get());
}

// Whoever made it: a field shorter than its labels would be read behind its end.
TEST(ResidentDataset, RefusesAFieldOfAnotherLengthThanItsLabels) {
  for (const int64_t labels : {4, 9}) {
    HostDataset host = small_dataset({image_spec(2, 3, 3)}, 5, 5);
    host.train.labels.resize(static_cast<size_t>(labels), 0);
    EXPECT_ERROR(testing::resident(host), Error, "field 'image' of the train split", "holds 90 bytes",
                 fmt::format("{} samples", labels));
  }
  HostDataset host = small_dataset({image_spec(2, 3, 3)}, 5, 5);
  host.test.fields[0].size_bytes = 0;  // as a caller leaves it who does not know of it
  EXPECT_ERROR(testing::resident(host), Error, "the test split", "holds 0 bytes");
  host = small_dataset({image_spec(2, 3, 3)}, 5, 5);
  host.test.labels[3] = 10;
  EXPECT_ERROR(testing::resident(host), Error, "label 10 of test sample 3");
}

TEST(ResidentDataset, CountsBytesThatDoNotFitAsTooMany) {
  HostDataset host = small_dataset({image_spec(2, 3, 3)}, 5, 5);
  host.train.fields[0].spec.height = int64_t{1} << 60;
  EXPECT_EQ(resident_bytes(host, {}), std::numeric_limits<int64_t>::max());
}

TEST(ResidentDataset, TellsItsBytesBefore) {
  const HostDataset host = small_dataset({image_spec(5, 7, 3), {"depth", SampleType::kU16, 4, 3, 1}}, 40, 11);
  for (const Stored store : {Stored::kAsSource, Stored::kFloat32, Stored::kBFloat16}) {
    ResidentConfig options;
    options.store = store;
    EXPECT_EQ(resident_bytes(host, options), testing::resident(host, options)->bytes());
  }
}

}  // namespace
}  // namespace espalier::data
