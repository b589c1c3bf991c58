#include "bench/growing/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"

namespace espalier::bench {
namespace {

constexpr size_t kPrices = 3;
using Row = std::array<double, kPrices>;  // stacks, bytes, flops; or their prices

Row row_of(const SeedWork& work) {
  return {work.stacks, work.bytes, work.flops};
}

// How often a step reads or writes as many values as the slot has: selecting and blending, then the layers of
// the blueprint, forward and backward.
double passes_of(std::string_view blueprint) {
  constexpr double kJoin = 8, kConv = 6, kNorm = 5;
  if (blueprint == "noop") return kJoin;
  if (blueprint == "norm") return kJoin + kNorm + 4;
  if (blueprint == "attention") return kJoin + 6;
  if (blueprint == "depthwise" || blueprint == "bottleneck") return kJoin + 2 * kConv + kNorm + 1;
  if (blueprint == "conv_heavy") return kJoin + 2 * kConv + 2 * kNorm + 1;
  return kJoin + kConv + kNorm + 1;
}

// Multiplications of a forward pass over one sample.
double multiplications_of(std::string_view blueprint, const grow::SeedShape& shape) {
  const auto c = static_cast<double>(shape.channels);
  const auto positions = static_cast<double>(shape.height * shape.width);
  if (blueprint == "noop" || blueprint == "norm") return 0;
  if (blueprint == "attention") return 2 * c * std::max(1.0, std::floor(c / 4));  // sees means alone
  if (blueprint == "depthwise") return positions * (9 * c + c * c);
  if (blueprint == "bottleneck") {
    const double narrow = std::max(8.0, std::floor(c / 4));
    return positions * (2 * c * narrow + 9 * narrow * narrow);
  }
  if (blueprint == "conv_small") return positions * c * c;
  return positions * 9 * c * c * (blueprint == "conv_heavy" ? 2 : 1);
}

// Least squares of (row prices - target), over the prices that `wanted` names; the others are 0. False where
// the rows do not tell them apart.
bool solve(const std::vector<Row>& rows, const std::vector<double>& targets,
           const std::vector<size_t>& wanted, Row& prices) {
  const size_t n = wanted.size();
  std::array<std::array<double, kPrices + 1>, kPrices> system{};
  for (size_t r = 0; r < rows.size(); ++r)
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) system[i][j] += rows[r][wanted[i]] * rows[r][wanted[j]];
      system[i][n] += rows[r][wanted[i]] * targets[r];
    }
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t k = i + 1; k < n; ++k)
      if (std::abs(system[k][i]) > std::abs(system[pivot][i])) pivot = k;
    if (std::abs(system[pivot][i]) < 1e-12) return false;  // columns are scaled to 1
    std::swap(system[i], system[pivot]);
    for (size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double factor = system[k][i] / system[i][i];
      for (size_t j = i; j <= n; ++j) system[k][j] -= factor * system[i][j];
    }
  }
  prices = {};
  for (size_t i = 0; i < n; ++i) prices[wanted[i]] = system[i][n] / system[i][i];
  return true;
}

}  // namespace

SeedWork& SeedWork::operator+=(const SeedWork& other) {
  stacks += other.stacks, bytes += other.bytes, flops += other.flops;
  return *this;
}

SeedWork work_of(std::string_view blueprint, const grow::SeedShape& shape, int64_t samples,
                 int64_t bytes_a_value) {
  const auto count = static_cast<double>(samples);
  const auto values = static_cast<double>(shape.channels * shape.height * shape.width);
  return {.bytes = passes_of(blueprint) * count * values * static_cast<double>(bytes_a_value),
          .flops = 3 * 2 * count * multiplications_of(blueprint, shape)};
}

double GrowingModel::at(const SeedWork& work) const {
  return bare_us + stack_us * work.stacks + byte_us * work.bytes + flop_us * work.flops;
}

std::string GrowingModel::text() const {
  return fmt::format(
      "a bare step of {:.1f} us, {:.1f} us a stack, {}, {}", bare_us, stack_us,
      byte_us > 0 ? fmt::format("bytes at {:.3g} TB/s", 1e-6 / byte_us) : "bytes free",
      flop_us > 0 ? fmt::format("products at {:.3g} TFLOP/s", 1e-6 / flop_us) : "products free");
}

GrowingModel fit_growing(double bare_us, const std::vector<WorkPoint>& points) {
  if (points.empty()) fail("fit_growing: points: want one or more, got none");
  for (const WorkPoint& point : points)
    if (!(point.time_us > 0)) fail("fit_growing: points: want times above 0, got {} us", point.time_us);
  // Relative errors: every row is divided by its time. Columns are scaled to 1: bytes are millions, stacks
  // are few.
  Row scale{};
  for (const WorkPoint& point : points)
    for (size_t i = 0; i < kPrices; ++i) scale[i] = std::max(scale[i], row_of(point.work)[i] / point.time_us);
  std::vector<Row> rows;
  std::vector<double> targets;
  for (const WorkPoint& point : points) {
    Row row = row_of(point.work);
    for (size_t i = 0; i < kPrices; ++i) row[i] = scale[i] > 0 ? row[i] / point.time_us / scale[i] : 0;
    rows.push_back(row);
    targets.push_back((point.time_us - bare_us) / point.time_us);
  }
  Row best{};
  double least = std::numeric_limits<double>::infinity();
  for (size_t subset = 0; subset < size_t{1} << kPrices; ++subset) {
    std::vector<size_t> wanted;
    for (size_t i = 0; i < kPrices; ++i)
      if ((subset >> i & 1) != 0) wanted.push_back(i);
    Row prices{};
    if (!solve(rows, targets, wanted, prices)) continue;
    if (std::ranges::any_of(prices, [](double price) { return price < 0; })) continue;
    double squares = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      double far = -targets[r];
      for (size_t i = 0; i < kPrices; ++i) far += rows[r][i] * prices[i];
      squares += far * far;
    }
    if (squares < least) least = squares, best = prices;
  }
  for (size_t i = 0; i < kPrices; ++i) best[i] = scale[i] > 0 ? best[i] / scale[i] : 0;
  GrowingModel model{.bare_us = bare_us, .stack_us = best[0], .byte_us = best[1], .flop_us = best[2]};
  double squares = 0;
  for (const WorkPoint& point : points) {
    const double far = std::abs(model.at(point.work) - point.time_us) / point.time_us;
    model.largest_error = std::max(model.largest_error, far);
    squares += far * far;
  }
  model.mean_error = std::sqrt(squares / static_cast<double>(points.size()));
  return model;
}

}  // namespace espalier::bench
