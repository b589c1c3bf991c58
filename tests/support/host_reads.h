// Reading a number on the host, or letting one decide how large a result is, makes a GPU wait. The operators
// known to do so are recorded, so that the CPU can show that there are none.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>

namespace espalier::support {

// As long as it lives, this thread's operators that read are noticed.
class ReadRecorder {
 public:
  ReadRecorder() {
    noticed().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function) {
          static const std::set<std::string> kReads{
              "aten::item",     "aten::_local_scalar_dense", "aten::is_nonzero",       "aten::nonzero",
              "aten::equal",    "aten::masked_select",       "aten::allclose",         "aten::bincount",
              "aten::_unique2", "aten::nonzero_numpy",       "aten::repeat_interleave"};
          if (kReads.contains(function.name())) noticed().insert(function.name());
          return std::unique_ptr<at::ObserverContext>();
        }).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~ReadRecorder() { at::removeCallback(handle_); }
  ReadRecorder(const ReadRecorder&) = delete;
  ReadRecorder& operator=(const ReadRecorder&) = delete;

  const std::set<std::string>& seen() const { return noticed(); }

 private:
  static std::set<std::string>& noticed() {
    static std::set<std::string> names;
    return names;
  }
  at::CallbackHandle handle_;
};

// As long as it lives, this thread's ranges of one name (RECORD_USER_SCOPE) are counted, or its calls of one
// operator (RecordScope::FUNCTION).
class RangeCounter {
 public:
  explicit RangeCounter(const std::string& name, at::RecordScope scope = at::RecordScope::USER_SCOPE) {
    counted() = {name, 0};
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                           if (counted().first == function.name()) counted().second += 1;
                                           return std::unique_ptr<at::ObserverContext>();
                                         }).scopes({scope}));
  }
  ~RangeCounter() { at::removeCallback(handle_); }
  RangeCounter(const RangeCounter&) = delete;
  RangeCounter& operator=(const RangeCounter&) = delete;

  int64_t count() const { return counted().second; }

 private:
  static std::pair<std::string, int64_t>& counted() {
    static std::pair<std::string, int64_t> of;
    return of;
  }
  at::CallbackHandle handle_;
};

}  // namespace espalier::support
