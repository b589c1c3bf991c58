// The gather operator against plain torch: index, pad, crop, flip, normalise, cast, one sample at a time.
#include "espalier/data/gather.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "tests/data/small_data.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#include "tests/support/threads.h"

namespace espalier::data {
namespace {

using testing::image_spec;
using testing::small_dataset;

struct Shape {
  FieldSpec spec;
  int64_t lanes = 1;
  int64_t batch = 1;
  int64_t num_samples = 64;
};

GatherCall make_call(const ResidentSplit& split, const Shape& shape, PlanKind kind, at::ScalarType type,
                     MemoryFormat format, c10::Device device) {
  GatherCall call;
  for (const ResidentField& field : split.fields) {
    call.fields.push_back(field.values);
    call.affine.push_back(field.affine);
    call.out.push_back(
        empty_stacked({shape.lanes, shape.batch, field.spec.channels, field.spec.height, field.spec.width},
                      format, at::TensorOptions(type).device(device)));
    call.out.back().fill_(-77);  // poison: everything must be written
  }
  call.labels = split.labels;
  call.lane_ids = at::arange(shape.lanes, at::TensorOptions(at::kLong).device(device));
  call.position = at::tensor({3, 0}, at::kLong);
  call.plan = {.kind = kind,
               .shuffled = true,
               .key = 42,
               .num_samples = split.num_samples(),
               .batch = shape.batch,
               .group_lanes = shape.lanes};
  call.augmentation = {.enabled = true, .flip = true, .crop_pad = 4, .seed = 42};
  call.labels_out = {at::full({shape.lanes, shape.batch}, -7, at::TensorOptions(at::kLong).device(device))};
  call.mask_out = at::zeros({shape.lanes, shape.batch}, at::TensorOptions(at::kBool).device(device));
  return call;
}

// One augmented, normalised sample by torch's own operators, in fp32: [C,H,W].
at::Tensor expected_sample(const GatherCall& call, size_t f, uint64_t epoch, int64_t sample) {
  const Displacement moved = displacement(call.augmentation, epoch, sample);
  const int64_t pad = std::max<int64_t>(call.augmentation.crop_pad, 0);
  const at::Tensor image = call.fields[f][sample].to(at::kFloat);
  const at::Tensor scale = call.affine[f][0].view({-1, 1, 1}), shift = call.affine[f][1].view({-1, 1, 1});
  // Computed in double and rounded once, as a fused multiply-add is.
  const at::Tensor normal =
      at::isFloatingType(call.fields[f].scalar_type())
          ? image
          : (image.to(at::kDouble) * scale.to(at::kDouble) + shift.to(at::kDouble)).to(at::kFloat);
  at::Tensor padded = shift.expand({image.size(0), image.size(1) + 2 * pad, image.size(2) + 2 * pad}).clone();
  padded.slice(1, pad, pad + image.size(1)).slice(2, pad, pad + image.size(2)).copy_(normal);
  if (moved.mirrored) {
    // Output x reads input W - 1 - x + shift: the window is cut out, then mirrored.
    return padded.slice(1, pad + moved.shift_y, pad + moved.shift_y + image.size(1))
        .slice(2, pad + moved.shift_x, pad + moved.shift_x + image.size(2))
        .flip(2);
  }
  return padded.slice(1, pad + moved.shift_y, pad + moved.shift_y + image.size(1))
      .slice(2, pad + moved.shift_x, pad + moved.shift_x + image.size(2));
}

void expect_matches_torch(const GatherCall& call) {
  const uint64_t epoch = 3;
  for (int64_t lane = 0; lane < call.lane_ids.numel(); ++lane) {
    const LaneRange range = lane_range(call.plan, lane, 0);
    for (int64_t i = 0; i < call.plan.batch; ++i) {
      const bool valid = i < range.count;
      ASSERT_EQ(call.mask_out[lane][i].item<bool>(), valid);
      const int64_t sample = valid ? sample_at(call.plan, lane, epoch, range.begin + i) : 0;
      ASSERT_EQ(call.labels_out[0][lane][i].item<int64_t>(),
                valid ? call.labels[sample].item<int64_t>() : -100);
      for (size_t f = 0; f < call.fields.size(); ++f) {
        const at::Tensor got = call.out[f][lane][i];
        const at::Tensor want =
            valid ? expected_sample(call, f, epoch, sample).to(got.scalar_type()) : at::zeros_like(got);
        ASSERT_TRUE(at::equal(got, want)) << "field " << f << " lane " << lane << " image " << i;
      }
    }
  }
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {image_spec(32, 32, 3), 8, 4},
      {image_spec(32, 32, 1), 3, 7},
      {image_spec(5, 7, 3), 1, 31, 97},
      {image_spec(1, 1, 1), 5, 33, 1000},
      {image_spec(1, 1, 3), 2, 32},
      {image_spec(9, 3, 4), 31, 1, 37},
      {image_spec(33, 31, 2), 2, 13, 20},
      {image_spec(64, 200, 5), 2, 3, 9},  // several tiles per image
      {{"depth", SampleType::kU16, 13, 11, 1}, 3, 5, 21},
      {{"depth", SampleType::kU16, 32, 32, 3}, 2, 9, 11},
      {image_spec(3, 5000, 4), 1, 2, 3},                  // one row is longer than a tile
      {{"scan", SampleType::kU16, 1, 7680, 3}, 1, 1, 2},  // with what a kernel has besides above 48 KiB
  };
  return all;
}

TEST(Gather, EqualsTorchForEverySizeTypeAndLayout) {
  for (const Shape& shape : shapes()) {
    const HostDataset dataset = small_dataset({shape.spec}, shape.num_samples, 1);
    for (const MemoryFormat layout : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
      for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        ResidentConfig options{.validation = 0};
        options.memory_format = layout;
        const auto data = testing::resident(dataset, options);
        for (const PlanKind kind : {PlanKind::kSplit, PlanKind::kOwn, PlanKind::kShared}) {
          const GatherCall call = make_call(data->train, shape, kind, type, options.memory_format, c10::kCPU);
          gather_into(call);
          SCOPED_TRACE(fmt::format("{}x{}x{} {} lanes {}", shape.spec.height, shape.spec.width,
                                   shape.spec.channels, shape.lanes, static_cast<int>(layout)));
          expect_matches_torch(call);
        }
      }
    }
  }
}

TEST(Gather, EqualsTorchForStoredFloats) {
  for (const Stored store : {Stored::kFloat32, Stored::kBFloat16}) {
    const Shape shape{image_spec(9, 8, 3), 3, 5, 40};
    ResidentConfig options{.validation = 0};
    options.store = store;
    const auto data = testing::resident(small_dataset({shape.spec}, shape.num_samples, 1), options);
    const GatherCall call =
        make_call(data->train, shape, PlanKind::kOwn, at::kFloat, MemoryFormat::kChannelsLast, c10::kCPU);
    gather_into(call);
    expect_matches_torch(call);
  }
}

TEST(Gather, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Shape shape{image_spec(32, 32, 3), 3, 50, 500};
  const HostDataset dataset = small_dataset({shape.spec, {"depth", SampleType::kU16, 21, 19, 1}}, 500, 1);
  for (const MemoryFormat layout : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      ResidentConfig options{.validation = 0};
      options.memory_format = layout;
      const auto data = testing::resident(dataset, options);
      espalier::testing::expect_same_bits_on_any_threads([&] {
        const GatherCall call = make_call(data->train, shape, PlanKind::kOwn, type, layout, c10::kCPU);
        gather_into(call);
        return std::vector<at::Tensor>{call.out[0], call.out[1], call.labels_out[0], call.mask_out};
      });
    }
}

TEST(Gather, GivesStoredFloatsTheBitsOfStoredIntegers) {
  const Shape shape{image_spec(9, 8, 3), 3, 5, 40};
  const HostDataset dataset = small_dataset({shape.spec}, shape.num_samples, 1);
  ResidentConfig floats{.validation = 0};
  floats.store = Stored::kFloat32;
  const auto a = testing::resident(dataset), b = testing::resident(dataset, floats);
  const auto from_bytes =
      make_call(a->train, shape, PlanKind::kOwn, at::kFloat, MemoryFormat::kChannelsLast, c10::kCPU);
  const auto from_floats =
      make_call(b->train, shape, PlanKind::kOwn, at::kFloat, MemoryFormat::kChannelsLast, c10::kCPU);
  gather_into(from_bytes);
  gather_into(from_floats);
  EXPECT_TRUE(at::equal(from_bytes.out[0], from_floats.out[0]));
}

TEST(Gather, MovesAllFieldsOfASampleAlike) {
  const Shape shape{image_spec(16, 16, 3), 2, 8, 40};
  HostDataset dataset = small_dataset({shape.spec, shape.spec}, shape.num_samples, 1);
  dataset.train.fields[1].values = dataset.train.fields[0].values;
  dataset.statistics[1] = dataset.statistics[0];
  const auto data = testing::resident(dataset);
  const GatherCall call =
      make_call(data->train, shape, PlanKind::kSplit, at::kFloat, MemoryFormat::kChannelsLast, c10::kCPU);
  gather_into(call);
  EXPECT_TRUE(at::equal(call.out[0], call.out[1]));
}

TEST(Gather, AugmentsASampleAlikeWhateverTheBatchAndTheLanes) {
  const HostDataset dataset = small_dataset({image_spec(12, 12, 3)}, 48, 1);
  const auto data = testing::resident(dataset);
  std::vector<at::Tensor> first(48), second(48);
  for (const auto& [lanes, batch, images] : {std::tuple{4L, 12L, &first}, std::tuple{3L, 16L, &second}}) {
    const Shape shape{image_spec(12, 12, 3), lanes, batch, 48};
    const GatherCall call =
        make_call(data->train, shape, PlanKind::kSplit, at::kFloat, MemoryFormat::kChannelsLast, c10::kCPU);
    gather_into(call);
    for (int64_t lane = 0; lane < lanes; ++lane)
      for (int64_t i = 0; i < batch; ++i)
        (*images)[static_cast<size_t>(
            sample_at(call.plan, lane, 3, lane_range(call.plan, lane, 0).begin + i))] = call.out[0][lane][i];
  }
  for (size_t i = 0; i < 48; ++i) EXPECT_TRUE(at::equal(first[i], second[i])) << i;
}

TEST(Gather, DrawsEveryShiftAndBothDirectionsEquallyOften) {
  const Augmentation augmentation{.enabled = true, .flip = true, .crop_pad = 4, .seed = 9};
  std::array<int, 9> rows{}, columns{};
  int mirrored = 0;
  constexpr int kDraws = 90000;
  for (int i = 0; i < kDraws; ++i) {
    const Displacement moved = displacement(augmentation, 5, i);
    ++rows.at(static_cast<size_t>(moved.shift_y + 4));
    ++columns.at(static_cast<size_t>(moved.shift_x + 4));
    mirrored += moved.mirrored;
  }
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(rows[i], kDraws / 9, 500);
    EXPECT_NEAR(columns[i], kDraws / 9, 500);
  }
  EXPECT_NEAR(mirrored, kDraws / 2, 750);
}

TEST(Gather, NamesTheArgumentThatItRefuses) {
  const Shape shape{image_spec(4, 4, 3), 2, 3, 20};
  const auto data = testing::resident(small_dataset({shape.spec}, shape.num_samples, 1));
  const auto call = [&] {
    return make_call(data->train, shape, PlanKind::kSplit, at::kFloat, MemoryFormat::kChannelsLast,
                     c10::kCPU);
  };
  GatherCall bad = call();
  bad.fields[0] = bad.fields[0].to(at::kInt);
  EXPECT_ERROR(gather_into(bad), c10::Error, "fields[0]", "uint8", "Int");
  bad = call();
  bad.out[0] = at::empty({2, 3, 3, 4, 4});
  EXPECT_ERROR(gather_into(bad), c10::Error, "out", "layout");
  bad = call();
  bad.out[0] = empty_stacked({2, 4, 3, 4, 4}, MemoryFormat::kChannelsLast, at::kFloat);
  EXPECT_ERROR(gather_into(bad), c10::Error, "out", "3 samples", "4");
  bad = call();
  bad.out[0] = bad.out[0].to(at::kDouble);
  EXPECT_ERROR(gather_into(bad), c10::Error, "out", "Double");
  bad = call();
  bad.plan.batch = 0;
  EXPECT_ERROR(gather_into(bad), c10::Error, "batch", "0");
  bad = call();
  bad.affine[0] = bad.affine[0].slice(1, 0, 2);
  EXPECT_ERROR(gather_into(bad), c10::Error, "affine[0]", "[2,3]");
  bad = call();
  bad.labels = bad.labels.slice(0, 0, 19);
  EXPECT_ERROR(gather_into(bad), c10::Error, "fields[0]", "19", "20");
}

TEST(Gather, RefusesLanesAndPositionsThatThePlanDoesNotHave) {
  const Shape shape{image_spec(4, 4, 3), 2, 3, 20};
  const auto data = testing::resident(small_dataset({shape.spec}, shape.num_samples, 1));
  const auto call = [&](PlanKind kind) {
    return make_call(data->train, shape, kind, at::kFloat, MemoryFormat::kChannelsLast, c10::kCPU);
  };
  GatherCall bad = call(PlanKind::kSplit);
  bad.lane_ids = at::tensor({0, 2}, at::kLong);
  EXPECT_ERROR(gather_into(bad), c10::Error, "lane_ids", "0 to 1", "got 2 at 1");
  bad = call(PlanKind::kOwn);
  bad.lane_ids = at::tensor({int64_t{-1}, int64_t{0}}, at::kLong);
  EXPECT_ERROR(gather_into(bad), c10::Error, "lane_ids", "got -1 at 0");
  bad = call(PlanKind::kOwn);
  bad.position = at::tensor({int64_t{0}, int64_t{1} << 62}, at::kLong);
  EXPECT_ERROR(gather_into(bad), c10::Error, "position", "4611686018427387904");
  bad = call(PlanKind::kSplit);
  bad.plan.group_lanes = int64_t{1} << 62;
  EXPECT_ERROR(gather_into(bad), c10::Error, "batch", "group_lanes", "4611686018427387904");
  bad = call(PlanKind::kOwn);
  bad.labels_out[0] = bad.labels_out[0].slice(0, 0, 1).expand({2, 3});
  EXPECT_ERROR(gather_into(bad), c10::Error, "labels_out", "contiguous", "[0, 1]");
  bad = call(PlanKind::kOwn);
  bad.labels_out[0] = at::Tensor();
  EXPECT_ERROR(gather_into(bad), c10::Error, "labels_out[0]", "none");
}

TEST(Gather, CountsUpTheVersionsOfWhatItWrites) {
  const Shape shape{image_spec(4, 4, 3), 2, 3, 20};
  const auto data = testing::resident(small_dataset({shape.spec}, shape.num_samples, 1));
  const GatherCall call =
      make_call(data->train, shape, PlanKind::kOwn, at::kFloat, MemoryFormat::kChannelsLast, c10::kCPU);
  const auto images = call.out[0]._version(), labels = call.labels_out[0]._version(),
             mask = call.mask_out._version(), fields = call.fields[0]._version();
  gather_into(call);
  EXPECT_EQ(call.out[0]._version(), images + 1);
  EXPECT_EQ(call.labels_out[0]._version(), labels + 1);
  EXPECT_EQ(call.mask_out._version(), mask + 1);
  EXPECT_EQ(call.fields[0]._version(), fields);
}

void expect_positions(const std::string& device) {
  for (const int64_t num_batches : {1, 2, 5}) {
    const at::Tensor position = at::tensor({3, 0}, at::kLong).to(device);
    for (int64_t step = 1; step <= 11; ++step) {
      advance_position_(position, num_batches);
      EXPECT_TRUE(
          at::equal(position.cpu(), at::tensor({3 + step / num_batches, step % num_batches}, at::kLong)))
          << step << " of " << num_batches << ": " << position;
    }
  }
}

TEST(Position, GoesFromBatchToBatchAndIntoTheNextPass) {
  expect_positions("cpu");
}

TEST(PositionCuda, GoesFromBatchToBatchAndIntoTheNextPass) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_positions("cuda");
}

TEST(Position, RefusesWhatIsNone) {
  EXPECT_ERROR(advance_position_(at::zeros({3}, at::kLong), 2), c10::Error, "position", "[2] Long", "[3]");
  EXPECT_ERROR(advance_position_(at::zeros({2}), 2), c10::Error, "position", "Long", "Float");
  EXPECT_ERROR(advance_position_(at::zeros({2}, at::kLong), 0), c10::Error, "num_batches", "at least 1", "0");
}

// Nobody waits for a device to see its lane ids and position: the kernel has no samples for what the plan
// does not have, and writes zeros, labelled -100, masked out.
TEST(GatherCuda, HasNoSamplesForLanesAndPositionsThatThePlanDoesNotHave) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const c10::Device device("cuda:0");
  const Shape shape{image_spec(8, 8, 3), 6, 3, 40};
  const auto data =
      testing::resident(small_dataset({shape.spec}, shape.num_samples, 1), {.validation = 0}, device);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  for (const PlanKind kind : {PlanKind::kSplit, PlanKind::kOwn}) {
    GatherCall call = make_call(data->train, shape, kind, at::kFloat, MemoryFormat::kChannelsLast, device);
    gather_into(call);
    const at::Tensor right = call.out[0][3].cpu(), labels = call.labels_out[0][3].cpu();
    call.out[0].fill_(-77);
    call.lane_ids = at::tensor({int64_t{-1}, kMost, kLeast, int64_t{3}, int64_t{1} << 40, int64_t{-6}},
                               at::TensorOptions(at::kLong).device(device));
    gather_into(call);
    for (const int64_t lane : {0, 1, 2, 4, 5}) {
      EXPECT_TRUE(call.out[0][lane].eq(0).all().item<bool>()) << lane;
      EXPECT_TRUE(call.labels_out[0][lane].eq(-100).all().item<bool>()) << lane;
      EXPECT_FALSE(call.mask_out[lane].any().item<bool>()) << lane;
    }
    EXPECT_TRUE(at::equal(call.out[0][3].cpu(), right));
    EXPECT_TRUE(at::equal(call.labels_out[0][3].cpu(), labels));

    call = make_call(data->train, shape, kind, at::kFloat, MemoryFormat::kChannelsLast, device);
    for (const int64_t batch : {int64_t{-1}, kLeast, kMost, int64_t{1} << 61, int64_t{40}}) {
      call.position = at::tensor({int64_t{3}, batch}, at::TensorOptions(at::kLong).device(device));
      gather_into(call);
      EXPECT_TRUE(call.out[0].eq(0).all().item<bool>()) << batch;
      EXPECT_TRUE(call.labels_out[0].eq(-100).all().item<bool>()) << batch;
      EXPECT_FALSE(call.mask_out.any().item<bool>()) << batch;
    }
  }
}

// Owned outputs whose sizes do not fit the lanes on the device: shorter ones are not written behind their
// end, longer ones end in zeros labelled -100.
TEST(GatherCuda, KeepsToTheSizesOfOwnedOutputs) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const c10::Device device("cuda:0");
  const Shape shape{image_spec(8, 8, 3), 2, 4, 7};
  const auto data =
      testing::resident(small_dataset({shape.spec}, shape.num_samples, 1), {.validation = 0}, device);
  const GatherCall whole =
      make_call(data->train, shape, PlanKind::kSplit, at::kFloat, MemoryFormat::kChannelsLast, device);
  gather_into(whole);  // 4 samples and 3
  GatherCall owned = whole;
  const at::TensorOptions options(device);
  const at::Tensor images =
      empty_images({9, 3, 8, 8}, MemoryFormat::kChannelsLast, options.dtype(at::kFloat));
  images.fill_(-77);
  const at::Tensor labels = at::full({9}, -7, options.dtype(at::kLong));
  owned.out = {images.slice(0, 0, 2), images.slice(0, 4, 8)};
  owned.labels_out = {labels.slice(0, 0, 2), labels.slice(0, 4, 8)};
  owned.mask_out = at::Tensor();
  gather_into(owned);
  EXPECT_TRUE(at::equal(images.slice(0, 0, 2), whole.out[0][0].slice(0, 0, 2)));
  EXPECT_TRUE(images.slice(0, 2, 4).eq(-77).all().item<bool>());
  EXPECT_TRUE(at::equal(images.slice(0, 4, 7), whole.out[0][1].slice(0, 0, 3)));
  EXPECT_TRUE(images[7].eq(0).all().item<bool>());
  EXPECT_TRUE(images[8].eq(-77).all().item<bool>());
  EXPECT_TRUE(at::equal(labels.slice(0, 0, 2), whole.labels_out[0][0].slice(0, 0, 2)));
  EXPECT_TRUE(labels.slice(0, 2, 4).eq(-7).all().item<bool>());
  EXPECT_EQ(labels[7].item<int64_t>(), -100);
  EXPECT_EQ(labels[8].item<int64_t>(), -7);
}

// The CUDA kernel against the CPU one, bit for bit, over the same sizes.
TEST(GatherCuda, EqualsTheCpuBitForBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const Shape& shape : shapes()) {
    const HostDataset dataset = small_dataset({shape.spec, image_spec(6, 5, 1)}, shape.num_samples, 1);
    for (const MemoryFormat layout : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
      for (const WantedResidency residency : {WantedResidency::kDevice, WantedResidency::kHost}) {
        ResidentConfig options{.validation = 0};
        options.memory_format = layout;
        options.residency = residency;
        const auto on_cpu = testing::resident(dataset, options);
        const auto on_gpu = testing::resident(dataset, options, c10::Device("cuda:0"));
        for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
          for (const PlanKind kind : {PlanKind::kSplit, PlanKind::kOwn, PlanKind::kShared}) {
            const auto want = make_call(on_cpu->train, shape, kind, type, options.memory_format, c10::kCPU);
            auto got =
                make_call(on_gpu->train, shape, kind, type, options.memory_format, c10::Device("cuda:0"));
            gather_into(want);
            if (kind == PlanKind::kOwn)
              got.position = got.position.to(c10::kCUDA);  // as a captured step reads it
            gather_into(got);
            SCOPED_TRACE(fmt::format("{}x{}x{} {} lanes {} {}", shape.spec.height, shape.spec.width,
                                     shape.spec.channels, shape.lanes, static_cast<int>(layout),
                                     static_cast<int>(residency)));
            for (size_t f = 0; f < 2; ++f) ASSERT_TRUE(at::equal(got.out[f].cpu(), want.out[f]));
            ASSERT_TRUE(at::equal(got.labels_out[0].cpu(), want.labels_out[0]));
            ASSERT_TRUE(at::equal(got.mask_out.cpu(), want.mask_out));
          }
        }
      }
    }
  }
}

TEST(GatherCuda, EqualsTheCpuForStoredFloats) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const Stored store : {Stored::kFloat32, Stored::kBFloat16}) {
    const Shape shape{image_spec(9, 8, 3), 3, 5, 40};
    ResidentConfig options{.validation = 0};
    options.store = store;
    const HostDataset dataset = small_dataset({shape.spec}, shape.num_samples, 1);
    const auto on_cpu = testing::resident(dataset, options),
               on_gpu = testing::resident(dataset, options, c10::Device("cuda:0"));
    const auto want =
        make_call(on_cpu->train, shape, PlanKind::kOwn, at::kBFloat16, options.memory_format, c10::kCPU);
    const auto got = make_call(on_gpu->train, shape, PlanKind::kOwn, at::kBFloat16, options.memory_format,
                               c10::Device("cuda:0"));
    gather_into(want);
    gather_into(got);
    EXPECT_TRUE(at::equal(got.out[0].cpu(), want.out[0]));
  }
}

}  // namespace
}  // namespace espalier::data
