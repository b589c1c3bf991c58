// Errors that reach the user: one sentence that names what, where, what was expected and what to do.
//
// Error ends a run (exit code 1); UsageError is a flag, a configuration or a call that cannot be meant (exit
// code 2). Only cli/program.cpp catches them. Operators, which Python calls too, use TORCH_CHECK instead.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace espalier {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class UsageError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace espalier
