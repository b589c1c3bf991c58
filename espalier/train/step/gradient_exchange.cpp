#include "espalier/train/step/gradient_exchange.h"

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <utility>

namespace espalier::train {
namespace {

// A message costs some 0.3 ms between processes of one machine, in which a slow network of 10 GB/s moves 3
// MB: much smaller ones would wait for messages, much larger ones for the backward pass.
constexpr int64_t kBucketBytes = 4 << 20;

// A network whose gradients are fewer has two buckets all the same: a backward pass makes the last layers'
// gradients first, which are the most bytes, and spends most of its time on the first layers' large images.
int64_t bucket_bytes(const std::vector<lanes::LaneParameter*>& parameters) {
  int64_t all_bytes = 0;
  for (const lanes::LaneParameter* parameter : parameters)
    all_bytes += static_cast<int64_t>(parameter->value().nbytes());
  return std::min(kBucketBytes, all_bytes / 2);
}

}  // namespace

GradientExchange::GradientExchange(ranks::World& world, std::vector<lanes::LaneParameter*> parameters)
    : world_(world), parameters_(std::move(parameters)), bucket_bytes_(bucket_bytes(parameters_)) {
  // A hook of a leaf gets the gradient that all its uses came to, once per backward pass.
  for (lanes::LaneParameter* parameter : parameters_)
    hooks_.push_back(parameter->value().register_hook(
        [this, parameter](const at::Tensor& gradient) { add(gradient, parameter->gradient()); }));
}

GradientExchange::~GradientExchange() {
  for (size_t i = 0; i < hooks_.size(); ++i) parameters_[i]->value().remove_hook(hooks_[i]);
}

void GradientExchange::add(const at::Tensor& values, const at::Tensor& to) {
  if (!open_.values.empty() && open_.values.front().scalar_type() != values.scalar_type())
    send(std::exchange(open_, {}));
  open_.values.push_back(values.detach());
  open_.to.push_back(to);
  open_bytes_ += static_cast<int64_t>(values.nbytes());
  if (open_bytes_ >= bucket_bytes_) send(std::exchange(open_, {}));
}

void GradientExchange::add_mean(const at::Tensor& values) {
  add(values * (1.0 / static_cast<double>(world_.size())), values);
}

void GradientExchange::send(Bucket bucket) {
  open_bytes_ = 0;
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> flat;
  for (const at::Tensor& each : bucket.values) flat.push_back(each.reshape({-1}));
  bucket.flat = at::cat(flat);
  bucket.values.clear();
  bucket.wait = world_.begin_sum_(bucket.flat);
  sent_.push_back(std::move(bucket));
}

void GradientExchange::finish() {
  if (!open_.values.empty()) send(std::exchange(open_, {}));
  const c10::NoGradGuard no_grad;
  for (const Bucket& bucket : sent_) {
    bucket.wait();
    int64_t begin = 0;
    for (const at::Tensor& to : bucket.to) {
      to.copy_(bucket.flat.narrow(0, begin, to.numel()).view(to.sizes()));
      begin += to.numel();
    }
  }
  sent_.clear();
}

}  // namespace espalier::train
