// Skips a test where there is no GPU, and says so; ESPALIER_REQUIRE_CUDA=1 turns the skip into a failure.
#pragma once

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <cstdlib>

#define ESPALIER_SKIP_WITHOUT_CUDA()                                           \
  do {                                                                         \
    if (!at::globalContext().hasCUDA()) {                                      \
      if (std::getenv("ESPALIER_REQUIRE_CUDA") != nullptr) FAIL() << "no GPU"; \
      GTEST_SKIP() << "no GPU on this machine";                                \
    }                                                                          \
  } while (false)
