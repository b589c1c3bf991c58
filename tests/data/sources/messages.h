// Checks on what an error says: tests of readers ask that it names the file, the value and what was expected.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "espalier/core/error.h"

namespace espalier::data::testing {

// The message of the Error that `body` throws; empty where it throws none.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

}  // namespace espalier::data::testing
