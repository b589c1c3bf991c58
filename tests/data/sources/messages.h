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

// What a reader says of damaged bytes: one line of bounded length, and it names the file.
inline void expect_sentence(const std::string& error, const std::string& file) {
  EXPECT_NE(error.find(file), std::string::npos) << "'" << file << "' is not in: " << error;
  EXPECT_LE(error.size(), 1000u) << error;
  for (const char c : error) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << error;
}

// How many of the damaged inputs were refused and accepted: a test in which one of the two never happened
// says nothing about it.
struct DamageCount {
  int refused = 0;
  int accepted = 0;
};

}  // namespace espalier::data::testing
