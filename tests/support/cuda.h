// Skips a test where there is no GPU, and says so; ESPALIER_REQUIRE_CUDA=1 turns the skip into a failure.
// Where kernels are emulated (tests/emulation), tests that leave the device to their helpers run on the CPU's
// tensors.
#pragma once

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace espalier::testing {

#ifdef ESPALIER_EMULATED
constexpr bool kIsEmulated = true;
#else
constexpr bool kIsEmulated = false;
#endif

}  // namespace espalier::testing

#define ESPALIER_SKIP_WITHOUT_CUDA()                                           \
  do {                                                                         \
    if (!at::globalContext().hasCUDA() && !espalier::testing::kIsEmulated) {   \
      if (std::getenv("ESPALIER_REQUIRE_CUDA") != nullptr) FAIL() << "no GPU"; \
      GTEST_SKIP() << "no GPU on this machine";                                \
    }                                                                          \
  } while (false)
