#include "espalier/grow/export/built_in.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "espalier/core/error.h"

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

// Each takes the channels and, where it has a norm, the groups of that; some the channels between.
enum class Takes { kNothing, kGroups, kBetween, kBetweenAndGroups };

struct SeedText {
  const char* blueprint;
  const char* name;
  Takes takes;
  int64_t least_between;  // a floor under C/4
  const char* definition;
};

constexpr std::array<SeedText, 8> kSeeds{{
    {"noop", "Noop", Takes::kNothing, 0, R"py(class Noop(nn.Module):
    """x"""

    def forward(self, x):
        return x
)py"},
    {"norm", "Norm", Takes::kGroups, 0, R"py(class Norm(nn.Module):
    """x + tanh(mix) (norm(x) - x)"""

    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.mix = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + torch.tanh(self.mix) * (self.norm(x) - x)
)py"},
    {"attention", "Attention", Takes::kBetween, 1, R"py(class Attention(nn.Module):
    """Squeeze and excite: every channel times a number in (0, 2) that depends on all of them."""

    def __init__(self, channels, between):
        super().__init__()
        self.squeeze = nn.Linear(channels, between)
        self.excite = nn.Linear(between, channels)

    def forward(self, x):
        features = F.relu(self.squeeze(x.mean(dim=(2, 3))))
        return x * (2 * torch.sigmoid(self.excite(features)))[:, :, None, None]
)py"},
    {"depthwise", "Depthwise", Takes::kGroups, 0, R"py(class Depthwise(nn.Module):
    """x + norm(relu(1x1(3x3 depthwise(x))))"""

    def __init__(self, channels, groups):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return x + self.norm(F.relu(self.pointwise(self.depthwise(x))))
)py"},
    {"bottleneck", "Bottleneck", Takes::kBetweenAndGroups, 8, R"py(class Bottleneck(nn.Module):
    """x + norm(1x1(3x3(1x1(x)))), with fewer channels between"""

    def __init__(self, channels, between, groups):
        super().__init__()
        self.down = nn.Conv2d(channels, between, 1, bias=False)
        self.conv = nn.Conv2d(between, between, 3, padding=1, bias=False)
        self.up = nn.Conv2d(between, channels, 1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return x + self.norm(self.up(self.conv(self.down(x))))
)py"},
    {"conv_small", "ConvSmall", Takes::kGroups, 0, R"py(class ConvSmall(nn.Module):
    """x + norm(relu(1x1(x)))"""

    def __init__(self, channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return x + self.norm(F.relu(self.conv(x)))
)py"},
    {"conv_light", "ConvLight", Takes::kGroups, 0, R"py(class ConvLight(nn.Module):
    """x + norm(relu(3x3(x)))"""

    def __init__(self, channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return x + self.norm(F.relu(self.conv(x)))
)py"},
    {"conv_heavy", "ConvHeavy", Takes::kGroups, 0, R"py(class ConvHeavy(nn.Module):
    """x + norm(relu(3x3(relu(norm(3x3(x))))))"""

    def __init__(self, channels, groups):
        super().__init__()
        self.conv0 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm0 = nn.GroupNorm(groups, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, channels)

    def forward(self, x):
        y = F.relu(self.norm0(self.conv0(x)))
        return x + self.norm1(F.relu(self.conv1(y)))
)py"},
}};

std::string arguments_of(const SeedText& text, int64_t channels) {
  const int64_t between = std::max(text.least_between, channels / 4);
  const int64_t groups = group_norm_groups(channels);
  switch (text.takes) {
    case Takes::kNothing:
      return "";
    case Takes::kGroups:
      return fmt::format("{}, groups={}", channels, groups);
    case Takes::kBetween:
      return fmt::format("{}, between={}", channels, between);
    case Takes::kBetweenAndGroups:
      return fmt::format("{}, between={}, groups={}", channels, between, groups);
  }
  return "";
}

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

std::function<PythonSeed(const SeedShape&)> built_in_python(std::string_view blueprint) {
  const auto found = std::ranges::find(kSeeds, blueprint, &SeedText::blueprint);
  if (found == kSeeds.end()) fail("blueprint '{}': has no Python of its own; this is a bug", blueprint);
  return [text = *found](const SeedShape& shape) {
    return PythonSeed{.type = {text.name, text.definition}, .arguments = arguments_of(text, shape.channels)};
  };
}

}  // namespace espalier::grow
