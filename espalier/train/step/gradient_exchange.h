// The gradients of a network that several processes train together, each on its part of a batch: added up
// over all of them, in buckets that are under way while the backward pass makes the rest.
//
// Kept true: what is added comes in the same order at every process (a backward pass of the same network), so
// buckets are the same everywhere; after finish() the gradients are the same bits at every process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "espalier/lanes/parameter.h"
#include "espalier/ranks/world.h"

namespace espalier::train {

class GradientExchange {
 public:
  // From here on, every gradient that a backward pass makes for one of these parameters is taken along; they
  // outlive the exchange.
  GradientExchange(ranks::World& world, std::vector<lanes::LaneParameter*> parameters);
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // Takes something else along: finish() writes the sum of all processes' values to `to`, of the same shape.
  void add(const at::Tensor& values, const at::Tensor& to);
  // After finish() they are the mean of all processes'. For running statistics of every process's part: they
  // are then the same everywhere, whoever evaluates or saves them.
  void add_mean(const at::Tensor& values);
  // After the last backward pass: waits for all sums, and writes them where they belong.
  void finish();

 private:
  struct Bucket {
    std::vector<at::Tensor> values;  // until it is sent
    std::vector<at::Tensor> to;
    at::Tensor flat;  // [n] all values, once it is sent
    std::function<void()> wait;
  };

  void send(Bucket bucket);

  ranks::World& world_;
  std::vector<lanes::LaneParameter*> parameters_;
  std::vector<unsigned> hooks_;  // one for each parameter
  int64_t bucket_bytes_ = 0;     // that a bucket has when it is sent, at least
  std::vector<Bucket> sent_;
  Bucket open_;
  int64_t open_bytes_ = 0;
};

}  // namespace espalier::train
