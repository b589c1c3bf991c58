// Torch's threads, and results that have to be the same bits however many there are.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace espalier::testing {

// While it lives.
class NumThreads {
 public:
  explicit NumThreads(int threads) : before_(at::get_num_threads()) { at::set_num_threads(threads); }
  ~NumThreads() { at::set_num_threads(before_); }
  NumThreads(const NumThreads&) = delete;
  NumThreads& operator=(const NumThreads&) = delete;

 private:
  int before_;
};

// results(): tensors, made anew by every call.
template <class Results>
void expect_same_bits_on_any_threads(const Results& results, const std::string& what = "") {
  const auto bits = [](const at::Tensor& values) {
    return at::empty(values.sizes(), values.options()).copy_(values).view({-1}).view(at::kByte);
  };
  std::vector<at::Tensor> alone;
  for (const int threads : {1, 2, 3, 5}) {
    const NumThreads while_made(threads);
    const std::vector<at::Tensor> got = results();
    if (threads == 1) alone = got;
    ASSERT_FALSE(got.empty());
    ASSERT_EQ(got.size(), alone.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_TRUE(at::equal(bits(got[i].detach()), bits(alone[i].detach())))
          << what << " result " << i << " on " << threads << " threads";
  }
}

}  // namespace espalier::testing
