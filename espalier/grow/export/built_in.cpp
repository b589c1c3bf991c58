#include "espalier/grow/export/built_in.h"

#include <fmt/format.h>

#include <string>

namespace espalier::grow {
namespace {

constexpr const char* kBlock = R"py(class Block(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, channels, filters, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(filters)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))
)py";

}  // namespace

PythonHost python_cnn(const CnnHostOptions& options) {
  PythonHost host{.classes = {{"Block", kBlock}}};
  int64_t channels = options.in_channels;
  for (int64_t i = 0; i < options.n_blocks; ++i) {
    const int64_t filters = options.base_channels << i;
    const std::string name = fmt::format("block{}", i);
    host.steps.push_back(
        {.module = name,
         .made = fmt::format("Block({}, {}, kernel={})", channels, filters, options.kernel_size),
         .forward = fmt::format("x = self.{}(x)", name)});
    host.steps.push_back({.slot = fmt::format("r0c{}", i)});
    channels = filters;
    if (i >= num_pooled(options)) continue;
    host.steps.push_back({.forward = "x = F.max_pool2d(x, 2)"});
    host.steps.push_back({.slot = fmt::format("r1c{}", i)});
  }
  host.steps.push_back({.module = "classifier",
                        .made = fmt::format("nn.Linear({}, {})", channels, options.num_classes),
                        .forward = "x = self.classifier(x.mean(dim=(2, 3)))"});
  return host;
}

}  // namespace espalier::grow
