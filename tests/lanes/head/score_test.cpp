#include "espalier/lanes/head/score.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

using testing::expect_same_bits;
namespace F = torch::nn::functional;

constexpr int64_t kIgnored = -100;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

enum Row : int64_t { kCrossEntropy, kHits, kSamples };

at::Tensor no_sums(int64_t lanes, at::Device device = at::kCPU) {
  return at::zeros({3, lanes}, at::TensorOptions(at::kDouble).device(device));
}

at::Tensor scores_of(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor sums = no_sums(logits.size(0), logits.device());
  add_lane_scores_(sums, logits, labels);
  return sums;
}

// The same, added up batch by batch.
at::Tensor scores_in_batches(const at::Tensor& logits, const at::Tensor& labels, int64_t batch) {
  const at::Tensor sums = no_sums(logits.size(0), logits.device());
  for (int64_t first = 0; first < logits.size(1); first += batch) {
    const int64_t here = std::min(batch, logits.size(1) - first);
    // In memory of their own, as those of a batch are.
    add_lane_scores_(sums, logits.narrow(1, first, here).clone(), labels.narrow(1, first, here).clone());
  }
  return sums;
}

// One lane's, by torch in double. The values are those of the type that the logits have.
struct TorchScores {
  double cross_entropy = 0;
  double hits = 0;
  double samples = 0;
};

TorchScores torch_scores(const at::Tensor& logits, const at::Tensor& labels) {
  const at::Tensor wide = logits.to(at::kDouble), is_valid = labels != kIgnored;
  return {
      .cross_entropy =
          F::cross_entropy(wide, labels, F::CrossEntropyFuncOptions().reduction(torch::kSum)).item<double>(),
      .hits = (wide.argmax(1) == labels).logical_and(is_valid).sum().item<double>(),
      .samples = is_valid.sum().item<double>()};
}

struct Batch {
  at::Tensor logits;  // [L,B,K]
  at::Tensor labels;  // [L,B]
};

// Logits far apart, some labels ignored.
Batch random_batch(int64_t lanes, int64_t batch, int64_t classes, at::ScalarType type, uint64_t seed = 3) {
  torch::manual_seed(seed);
  Batch drawn{.logits = (at::randn({lanes, batch, classes}, at::kDouble) * 3).to(type),
              .labels = at::randint(classes, {lanes, batch}, at::kLong)};
  drawn.labels.masked_fill_(at::rand({lanes, batch}) < 0.15, kIgnored);
  return drawn;
}

constexpr at::ScalarType kTypes[] = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

TEST(Score, EqualsTorchsCrossEntropyAndArgmaxLaneByLane) {
  for (const at::ScalarType type : kTypes)
    for (const int64_t batch : {1, 31, 100})
      for (const int64_t classes : {1, 2, 10, 1000}) {
        const Batch drawn = random_batch(4, batch, classes, type);
        const at::Tensor sums = scores_of(drawn.logits, drawn.labels);
        for (int64_t lane = 0; lane < 4; ++lane) {
          const TorchScores want = torch_scores(drawn.logits[lane], drawn.labels[lane]);
          const std::string what =
              fmt::format("{}, {} samples, {} classes, lane {}", c10::toString(type), batch, classes, lane);
          EXPECT_NEAR(sums[kCrossEntropy][lane].item<double>(), want.cross_entropy,
                      1e-12 * want.cross_entropy)
              << what;
          EXPECT_EQ(sums[kHits][lane].item<double>(), want.hits) << what;
          EXPECT_EQ(sums[kSamples][lane].item<double>(), want.samples) << what;
        }
      }
}

TEST(Score, CountsTheFirstOfEqualLogitsAsTorchDoes) {
  torch::manual_seed(5);
  const at::Tensor logits = at::randn({2, 200, 7}).round(), labels = at::randint(7, {2, 200}, at::kLong);
  const at::Tensor sums = scores_of(logits, labels);
  for (int64_t lane = 0; lane < 2; ++lane)
    EXPECT_EQ(sums[kHits][lane].item<double>(), torch_scores(logits[lane], labels[lane]).hits);
}

TEST(Score, AddsToWhatIsThere) {
  const Batch drawn = random_batch(3, 20, 10, at::kFloat);
  const at::Tensor sums = at::full({3, 3}, 1000.0, at::kDouble);
  add_lane_scores_(sums, drawn.logits, drawn.labels);
  const at::Tensor want = scores_of(drawn.logits, drawn.labels) + 1000;
  EXPECT_LE(testing::distance(sums, want), 1e-12 * 1000);
}

TEST(Score, CountsNothingOfWhatIsIgnored) {
  const Batch drawn = random_batch(3, 20, 10, at::kFloat);
  drawn.labels[1].fill_(kIgnored);
  at::Tensor spoilt = drawn.logits.clone();
  spoilt.masked_fill_((drawn.labels == kIgnored).unsqueeze(2), kNaN);
  const at::Tensor sums = scores_of(spoilt, drawn.labels);
  expect_same_bits(sums, scores_of(drawn.logits, drawn.labels), "NaN where labels are ignored");
  for (const Row row : {kCrossEntropy, kHits, kSamples}) EXPECT_EQ(sums[row][1].item<double>(), 0);
  EXPECT_EQ(testing::largest(scores_of(drawn.logits.narrow(1, 0, 0), drawn.labels.narrow(1, 0, 0))), 0);
}

TEST(Score, DoesNotDependOnHowSamplesAreCutIntoBatches) {
  for (const at::ScalarType type : kTypes) {
    const Batch drawn = random_batch(3, 100, 10, type);
    const at::Tensor whole = scores_of(drawn.logits, drawn.labels);
    for (const int64_t batch : {1, 7, 64, 100})
      expect_same_bits(scores_in_batches(drawn.logits, drawn.labels, batch), whole,
                       fmt::format("{} in batches of {}", c10::toString(type), batch));
  }
}

// Whatever is wrong with lane 1 of 3 stays there.
void expect_that_others_do_not_notice(const Batch& healthy, const at::Tensor& logits,
                                      const at::Tensor& labels, const std::string& what) {
  const at::Tensor want = scores_of(healthy.logits, healthy.labels), got = scores_of(logits, labels);
  for (const int64_t lane : {0, 2})
    expect_same_bits(got.select(1, lane).clone(), want.select(1, lane).clone(), what);
  EXPECT_TRUE(std::isnan(got[kCrossEntropy][1].item<double>())) << what;
  EXPECT_EQ(got[kSamples][1].item<double>(), want[kSamples][1].item<double>()) << what;
}

void expect_isolated_scores(at::Device device) {
  const Batch drawn = random_batch(3, 40, 10, at::kFloat);
  const Batch healthy{drawn.logits.to(device), drawn.labels.to(device)};
  healthy.labels[1][30] = 4;
  for (const double value : {kNaN, kInf}) {
    at::Tensor logits = healthy.logits.clone();
    logits[1][30][7] = value;
    expect_that_others_do_not_notice(healthy, logits, healthy.labels, "a logit");
  }
  for (const int64_t label : {-1, 10, -101, 1 << 20}) {
    at::Tensor labels = healthy.labels.clone();
    labels[1][30] = label;
    expect_that_others_do_not_notice(healthy, healthy.logits, labels, "label " + std::to_string(label));
  }
}

TEST(Score, IsNaNForALaneWithLogitsOrLabelsThatAreWrongAlone) {
  expect_isolated_scores(at::kCPU);
}

TEST(Score, TakesANaNForTheLargestLogitAsTorchDoes) {
  at::Tensor logits = at::zeros({1, 2, 4});
  logits[0][0][2] = kNaN;
  logits[0][1][3] = 5;
  const at::Tensor labels = at::tensor({2, 3}, at::kLong).unsqueeze(0);
  EXPECT_EQ(scores_of(logits, labels)[kHits][0].item<double>(), 2);
}

TEST(Score, ReadsLabelsThatAllLanesShareAndStacksOfAnyStrides) {
  const Batch drawn = random_batch(3, 33, 10, at::kFloat);
  const at::Tensor shared = drawn.labels.slice(0, 1, 2).expand({3, -1});
  const at::Tensor want = scores_of(drawn.logits, shared.clone(c10::MemoryFormat::Contiguous));
  expect_same_bits(scores_of(drawn.logits, shared), want, "expanded labels");
  const at::Tensor logits =
      drawn.logits.permute({2, 0, 1}).clone(c10::MemoryFormat::Contiguous).permute({1, 2, 0});
  expect_same_bits(scores_of(logits, shared), want, "logits of which classes lie far apart");
  const at::Tensor transposed = drawn.labels.t().clone(c10::MemoryFormat::Contiguous).t();
  expect_same_bits(scores_of(drawn.logits, transposed), scores_of(drawn.logits, drawn.labels),
                   "labels that lie sample by sample");
  expect_same_bits(scores_of(drawn.logits.clone().set_requires_grad(true), shared), want,
                   "logits with a tape");
}

TEST(Score, NamesTheArgumentThatItRefuses) {
  const at::Tensor logits = at::randn({2, 3, 4}), labels = at::zeros({2, 3}, at::kLong), sums = no_sums(2);
  EXPECT_ERROR(add_lane_scores_(sums, logits[0], labels), c10::Error, "logits", "[L,B,K]", "[3, 4]");
  EXPECT_ERROR(add_lane_scores_(sums, logits.to(at::kLong), labels), c10::Error, "logits", "floats", "Long");
  EXPECT_ERROR(add_lane_scores_(sums, logits.slice(2, 0, 0), labels), c10::Error, "logits", "[2, 3, 0]");
  EXPECT_ERROR(add_lane_scores_(sums, logits, labels.to(at::kInt)), c10::Error, "labels", "int64", "Int");
  EXPECT_ERROR(add_lane_scores_(sums, logits, labels.slice(1, 1)), c10::Error, "labels", "[L,B]", "[2, 2]");
  EXPECT_ERROR(add_lane_scores_(sums, logits, labels.slice(0, 1)), c10::Error, "labels", "[L,B]", "[1, 3]");
  EXPECT_ERROR(add_lane_scores_(no_sums(3), logits, labels), c10::Error, "sums", "[3,L]", "[3, 3]");
  EXPECT_ERROR(add_lane_scores_(sums.to(at::kFloat), logits, labels), c10::Error, "sums", "float64", "Float");
  const at::Tensor gaps = at::zeros({3, 4}, at::kDouble).slice(1, 0, 2);
  EXPECT_ERROR(add_lane_scores_(gaps, logits, labels), c10::Error, "sums", "contiguous", "[4, 1]");
}

// exp and log of two libraries differ by a few roundings of a sample's cross entropy, which are relative to
// the logits that it is the difference of.
TEST(ScoreCuda, EqualsTheCpuForEverySizeAndType) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const at::ScalarType type : kTypes)
    for (const int64_t lanes : {1, 3})
      for (const int64_t batch : {1, 31, 511, 512, 513, 1025})
        for (const int64_t classes : {1, 10, 1000}) {
          const Batch drawn = random_batch(lanes, batch, classes, type);
          const at::Tensor want = scores_of(drawn.logits, drawn.labels);
          const at::Tensor got = scores_of(drawn.logits.to(at::kCUDA), drawn.labels.to(at::kCUDA)).cpu();
          const std::string what =
              fmt::format("{}, {} lanes, {} samples, {} classes", c10::toString(type), lanes, batch, classes);
          const double largest_logit = testing::largest(drawn.logits);
          EXPECT_LE(testing::distance(got[kCrossEntropy], want[kCrossEntropy]),
                    0x1p-52 * static_cast<double>(batch) * (16 + largest_logit + testing::largest(want)))
              << what;
          expect_same_bits(got[kHits], want[kHits], what);
          expect_same_bits(got[kSamples], want[kSamples], what);
        }
}

TEST(ScoreCuda, DoesNotDependOnHowSamplesAreCutIntoBatches) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const at::ScalarType type : kTypes)
    for (const int64_t samples : {1, 31, 511, 512, 513, 1025})
      for (const int64_t classes : {1, 10, 1000}) {
        const Batch drawn = random_batch(3, samples, classes, type);
        const at::Tensor logits = drawn.logits.to(at::kCUDA), labels = drawn.labels.to(at::kCUDA);
        const at::Tensor whole = scores_of(logits, labels);
        for (const int64_t batch : {1, 7, 64, 100, 512, 700})
          if (batch < samples && (batch > 1 || samples < 100))
            expect_same_bits(scores_in_batches(logits, labels, batch), whole,
                             fmt::format("{}, {} samples in batches of {}, {} classes", c10::toString(type),
                                         samples, batch, classes));
      }
}

TEST(ScoreCuda, IsNaNForALaneWithLogitsOrLabelsThatAreWrongAlone) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  expect_isolated_scores(at::Device(at::kCUDA, 0));
}

TEST(ScoreCuda, ReadsLabelsAndLogitsOfAnyStrides) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const Batch drawn = random_batch(3, 33, 10, at::kFloat);
  const at::Tensor logits = drawn.logits.to(at::kCUDA), labels = drawn.labels.to(at::kCUDA);
  const at::Tensor shared = labels.slice(0, 1, 2).expand({3, -1});
  const at::Tensor want = scores_of(logits, shared.clone(c10::MemoryFormat::Contiguous));
  expect_same_bits(scores_of(logits, shared), want, "expanded labels");
  const at::Tensor far = logits.permute({2, 0, 1}).clone(c10::MemoryFormat::Contiguous).permute({1, 2, 0});
  expect_same_bits(scores_of(far, shared), want, "logits of which classes lie far apart");
  const at::Tensor transposed = labels.t().clone(c10::MemoryFormat::Contiguous).t();
  expect_same_bits(scores_of(logits, transposed), scores_of(logits, labels),
                   "labels that lie sample by sample");
}

TEST(ScoreCuda, CountsHitsOfTiesAndNaNsAsTheCpuDoes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  torch::manual_seed(5);
  at::Tensor logits = at::randn({2, 200, 7}).round();
  logits.masked_fill_(at::rand({2, 200, 7}) < 0.02, kNaN);
  const at::Tensor labels = at::randint(7, {2, 200}, at::kLong);
  expect_same_bits(scores_of(logits.to(at::kCUDA), labels.to(at::kCUDA)).cpu()[kHits],
                   scores_of(logits, labels)[kHits], "hits");
}

}  // namespace
}  // namespace espalier::lanes
