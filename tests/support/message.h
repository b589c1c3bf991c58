// EXPECT_ERROR(statement, Type, "part", ...): throws Type, and its message contains every part.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace espalier::testing {

inline void expect_parts(const std::string& message, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
}

}  // namespace espalier::testing

#define EXPECT_ERROR(statement, Type, ...)                            \
  do {                                                                \
    try {                                                             \
      static_cast<void>(statement);                                   \
      ADD_FAILURE() << "did not throw: " #statement;                  \
    } catch (const Type& error) {                                     \
      ::espalier::testing::expect_parts(error.what(), {__VA_ARGS__}); \
    }                                                                 \
  } while (false)
