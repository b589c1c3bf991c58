// Which of torch's operators run, by name: on a GPU every one of them that computes is a launch.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace espalier::support {

// As long as it lives, all threads' calls of torch's operators are counted, those that a backward pass makes
// too.
class OperatorCounter {
 public:
  OperatorCounter() {
    counts().clear();
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function) {
                                      const std::lock_guard lock(mutex());
                                      counts()[function.name()] += 1;
                                      return std::unique_ptr<at::ObserverContext>();
                                    }).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCounter() { at::removeCallback(handle_); }
  OperatorCounter(const OperatorCounter&) = delete;
  OperatorCounter& operator=(const OperatorCounter&) = delete;

  // Those that are no mere views, allocations or questions.
  static std::map<std::string, int64_t> computing() {
    const std::lock_guard lock(mutex());
    std::map<std::string, int64_t> all = counts();
    for (const char* const idle : {"aten::empty",        "aten::empty_strided",
                                   "aten::empty_like",   "aten::select",
                                   "aten::narrow",       "aten::slice",
                                   "aten::view",         "aten::as_strided",
                                   "aten::detach",       "detach",
                                   "aten::expand",       "aten::permute",
                                   "aten::transpose",    "aten::t",
                                   "aten::unsqueeze",    "aten::squeeze",
                                   "aten::alias",        "aten::reshape",
                                   "aten::view_as",      "aten::_unsafe_view",
                                   "aten::contiguous",   "aten::as_strided_",
                                   "aten::record_stream"})
      all.erase(idle);
    std::erase_if(all, [](const auto& each) { return each.first.starts_with("autograd::"); });
    return all;
  }

 private:
  static std::map<std::string, int64_t>& counts() {
    static std::map<std::string, int64_t> names;
    return names;
  }
  static std::mutex& mutex() {
    static std::mutex only;
    return only;
  }
  at::CallbackHandle handle_;
};

}  // namespace espalier::support
