#include "espalier/core/sign_flip.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "espalier/core/interval.h"
#include "espalier/core/random/philox.h"

namespace espalier {
namespace {

// Sums of equal numbers in another order differ in their last bits: assignments within this share of the
// largest possible sum count as equal to the observed one.
constexpr double kRounding = 1e-12;

// Whether the n-th difference is turned in an assignment: of all of them, by its bits; of drawn ones, by
// numbers that belong to (assignment, place) alone.
bool is_turned_in_all(size_t assignment, size_t n) {
  return (assignment >> n & 1) != 0;
}

class Drawn {
 public:
  explicit Drawn(size_t assignment) : assignment_(static_cast<uint32_t>(assignment)) {}

  bool is_turned(size_t n) {
    if (n % 128 == 0)
      words_ = philox4x32(/*key=*/0, assignment_, static_cast<uint32_t>(n / 128), 0,
                          static_cast<uint32_t>(Purpose::kSignFlip));
    return (words_[static_cast<int>(n % 128 / 32)] >> (n % 32) & 1) != 0;
  }

 private:
  uint32_t assignment_;
  Words4 words_{};
};

template <class IsTurned>
double sum_of(const std::vector<double>& differences, IsTurned&& is_turned) {
  double sum = 0;
  for (size_t n = 0; n < differences.size(); ++n) sum += is_turned(n) ? -differences[n] : differences[n];
  return sum;
}

}  // namespace

double sign_flip_p(const std::vector<double>& differences) {
  double observed = 0, largest = 0;
  for (const double difference : differences) {
    observed += difference;
    largest += std::abs(difference);
  }
  if (largest == 0) return 1;
  const double bar = std::abs(observed) - kRounding * largest;
  size_t as_far = 0;
  if (differences.size() <= kMostExactSigns) {
    const size_t all = size_t{1} << differences.size();
    for (size_t assignment = 0; assignment < all; ++assignment)
      as_far +=
          std::abs(sum_of(differences, [&](size_t n) { return is_turned_in_all(assignment, n); })) >= bar ? 1
                                                                                                          : 0;
    return static_cast<double>(as_far) / static_cast<double>(all);
  }
  for (size_t assignment = 0; assignment < kDrawnSigns; ++assignment) {
    Drawn drawn(assignment);
    as_far += std::abs(sum_of(differences, [&](size_t n) { return drawn.is_turned(n); })) >= bar ? 1 : 0;
  }
  return static_cast<double>(as_far + 1) / static_cast<double>(kDrawnSigns + 1);
}

double sign_flip_p_over_groups(const std::vector<double>& differences, size_t group_size) {
  const std::vector<double> means = group_means(differences, group_size);
  return sign_flip_p(means.size() < 2 ? differences : means);
}

std::string p_text(double p) {
  return p < 0.001 ? "< 0.001" : fmt::format("{:.3f}", p);
}

}  // namespace espalier
