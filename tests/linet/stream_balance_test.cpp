#include "espalier/linet/stream_balance.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

namespace espalier::linet {
namespace {

TEST(StreamBalance, IsTheMeanOverLayersOfTheVarianceOfLogarithms) {
  const double e = std::exp(1.0);
  // Logarithms 0, 1, 2 have the variance 2/3 about their mean; equal ones have none.
  const std::vector<at::Tensor> layers{at::tensor({1.0, e, e * e}, at::kDouble),
                                       at::tensor({5.0, 5.0, 5.0}, at::kDouble)};
  EXPECT_NEAR(stream_balance_loss(layers).item<double>(), (2.0 / 3 + 0) / 2, 1e-12);
  EXPECT_EQ(stream_balance_loss({at::tensor({3.0}, at::kDouble)}).item<double>(), 0);  // one stream
}

TEST(StreamBalance, SharesAddUpToOne) {
  const at::Tensor shares =
      stream_shares({at::tensor({1.0, 3.0}, at::kDouble), at::tensor({1.0, 1.0}, at::kDouble)});
  EXPECT_NEAR(shares[0].item<double>(), (0.25 + 0.5) / 2, 1e-12);
  EXPECT_NEAR(shares[1].item<double>(), (0.75 + 0.5) / 2, 1e-12);
}

}  // namespace
}  // namespace espalier::linet
