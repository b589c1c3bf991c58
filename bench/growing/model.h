// What a step of networks that have grown costs, as a function of the seeds that stand in them.
//
// The model: time = the bare step + for every stack (the seeds of one blueprint in one slot): s
//                 + a (bytes that the seeds move) + b (products that they compute).
// The three prices s, a and b are fitted to steps whose seeds are all of one kind. A step with seeds of all
// kinds is not among them, so the error there shows what the model is worth. Prices are never negative;
// they are found by least squares of relative errors, over every way to leave some of them out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/grow/seeds/blueprint.h"

namespace espalier::bench {

// What seeds add to a training step: forward, backward and update.
struct SeedWork {
  double stacks = 0;
  double bytes = 0;
  double flops = 0;  // a multiplication and an addition are two

  SeedWork& operator+=(const SeedWork& other);
};

// The work of one seed on so many samples: what it reads and writes where every layer is a kernel of its own
// that reads what it needs once, and the products of its convolutions and of attention, forward, to the data
// and to the weights. Its stack is not counted. A blueprint that is not one of ours is taken for conv_light.
SeedWork work_of(std::string_view blueprint, const grow::SeedShape& shape, int64_t samples,
                 int64_t bytes_a_value);

struct WorkPoint {
  SeedWork work;
  double time_us = 0;  // what the step with these seeds takes
};

struct GrowingModel {
  double bare_us = 0;
  double stack_us = 0;
  double byte_us = 0;
  double flop_us = 0;
  double largest_error = 0;  // the largest relative error at a step that it was fitted to
  double mean_error = 0;     // root of the mean squared relative error there

  double at(const SeedWork& work) const;
  // "a bare step of 1000.0 us, 2.1 us a stack, bytes at 1.20 TB/s, products at 15.0 TFLOP/s"
  std::string text() const;
};

// points: one or more; times above 0.
GrowingModel fit_growing(double bare_us, const std::vector<WorkPoint>& points);

}  // namespace espalier::bench
