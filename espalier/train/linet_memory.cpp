#include "espalier/train/linet_memory.h"

#include <algorithm>

#include "espalier/data/resident.h"
#include "espalier/linet/linet_shape.h"
#include "espalier/train/linet_trainer.h"

namespace espalier::train {
namespace {

// What a walk over the layers adds up.
struct Walk {
  int64_t paths;            // S+1
  int64_t parameters = 0;   // values
  int64_t activations = 0;  // values a sample that are kept for the backward pass
  int64_t widest = 0;       // values a sample of the largest activation

  // A layer keeps its raw responses and what its norm makes of them.
  void layer(int64_t channels, int64_t filters, int64_t kernel, int64_t height, int64_t width) {
    parameters += (paths - 1) * (filters * channels * kernel * kernel + filters * filters) +
                  filters * channels + 2 * paths * filters;
    add(2 * filters * height * width);
  }
  void add(int64_t values_a_path) {
    activations += paths * values_a_path;
    widest = std::max(widest, paths * values_a_path);
  }
};

int64_t halved(int64_t size) {
  return (size + 1) / 2;
}

Walk walk_over(const linet::LinetShape& shape, int64_t height, int64_t width) {
  Walk walk{.paths = shape.num_streams() + 1};
  height = halved(height);
  width = halved(width);
  walk.layer(shape.in_channels[0], shape.widths[0], 7, height, width);
  height = halved(height);
  width = halved(width);
  walk.add(2 * shape.widths[0] * height * width);  // pooled, and where the largest were
  int64_t channels = shape.widths[0];
  const bool is_basic = shape.block == linet::BlockKind::kBasic;
  for (size_t stage = 0; stage < shape.stages.size(); ++stage)
    for (int64_t i = 0; i < shape.stages[stage]; ++i) {
      const int64_t inner = shape.widths[stage], out = inner * linet::expansion(shape.block);
      const bool halves = stage > 0 && i == 0;
      if (!is_basic) walk.layer(channels, inner, 1, height, width);
      if (halves) {
        height = halved(height);
        width = halved(width);
      }
      walk.layer(is_basic ? channels : inner, inner, 3, height, width);
      walk.layer(inner, out, is_basic ? 3 : 1, height, width);
      if (halves || channels != out) walk.layer(channels, out, 1, height, width);
      channels = out;
    }
  walk.parameters += (channels + 1) * shape.num_classes;
  return walk;
}

}  // namespace

MemoryPlan linet_parts(const LinetOptions& options, int64_t data_bytes,
                       const std::vector<data::FieldSpec>& fields, int64_t num_classes, at::Device device) {
  const linet::LinetShape shape = linet_shape(options, fields, num_classes, device);
  const std::vector<size_t> chosen = stream_fields(options, fields);
  const auto item = static_cast<int64_t>(c10::elementSize(compute_type(options.amp, device)));
  const Walk walk = walk_over(shape, fields[chosen[0]].height, fields[chosen[0]].width);
  int64_t pixels = 0;
  for (const size_t field : chosen)
    pixels += fields[field].channels * fields[field].height * fields[field].width;
  // fp32 values and gradients, one momentum or two, and the compute copy.
  const int64_t a_parameter = (options.optimizer == "sgd" ? 3 : 4) * 4 + (item < 4 ? item : 0);
  MemoryPlan plan;
  const auto add = [&](const char* what, int64_t bytes) {
    MemoryPart& part = plan.parts.emplace_back();
    part.what = what;
    part.bytes = bytes;
  };
  add("data", data_bytes);
  add("batches, of training and of evaluation", 2 * options.batch * pixels * item);
  add("weights, gradients, optimiser", walk.parameters * a_parameter);
  add("activations", options.batch * (walk.activations + walk.widest) * item);
  return plan;
}

MemoryPlan plan_linet(const LinetOptions& options, int64_t data_bytes,
                      const std::vector<data::FieldSpec>& fields, int64_t num_classes) {
  const c10::Device device = data::torch_device(data::choose_device(options.device));
  return with_budget(linet_parts(options, data_bytes, fields, num_classes, device), device,
                     options.device_memory);
}

}  // namespace espalier::train
