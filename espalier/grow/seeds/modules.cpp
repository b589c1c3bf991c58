#include "espalier/grow/seeds/modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "espalier/grow/seeds/branch.h"
#include "espalier/grow/seeds/squeeze.h"
#include "espalier/lanes/conv/layer.h"
#include "espalier/lanes/head/linear.h"
#include "espalier/lanes/stack.h"

namespace espalier::grow {
namespace {

using lanes::Activation;
using lanes::append_parameters;
using lanes::LaneConv2d;
using lanes::LaneGroupNorm;
using lanes::LaneLinear;
using lanes::LaneParameter;
using lanes::Mode;
using lanes::NamedParameter;

struct ConvShape {
  int64_t from = 1;
  int64_t to = 1;
  int64_t kernel = 1;
  int64_t groups = 1;
};

LaneConv2d make_conv(const SeedBuild& build, const ConvShape& shape) {
  return LaneConv2d({.lanes = build.entries,
                     .in_channels = shape.from,
                     .out_channels = shape.to,
                     .kernel_size = shape.kernel,
                     .geometry = {.padding = shape.kernel / 2, .groups = shape.groups}},
                    build.options, build.compute);
}

LaneGroupNorm make_norm(const SeedBuild& build) {
  const int64_t channels = build.shape.channels;
  return LaneGroupNorm(build.entries, group_norm_groups(channels), channels, build.options);
}

void begin_norm(const SeedInit& init, const std::string& name, LaneGroupNorm& norm) {
  init.fill({name + ".weight", &norm.weight}, 1);
  init.fill({name + ".bias", &norm.bias}, 0);
}

// The last norm of a branch: 0 at birth, and what it normalises is not.
void begin_last_norm(const SeedInit& init, const std::string& name, LaneGroupNorm& norm) {
  init.fill({name + ".weight", &norm.weight}, 0);
  init.fill({name + ".bias", &norm.bias}, 0);
}

// How a branch ends. The norm comes last: a ReLU behind one that begins at 0 would shut for good wherever the
// first step takes its bias below 0.
at::Tensor normed_beside(const at::Tensor& through, const at::Tensor& y, Activation before,
                         const LaneGroupNorm& norm) {
  if (lanes::takes_rectified(y)) return norm.forward_beside(through, y, before);
  return lane_residual(through, norm.forward(before == Activation::kRelu ? lane_curve(y, Curve::kRelu) : y));
}

int64_t norm_parameters(int64_t channels) {
  return 2 * channels;
}

// How a class of Python with a group norm is made.
std::string with_groups(const SeedShape& shape) {
  return fmt::format("{}, groups={}", shape.channels, group_norm_groups(shape.channels));
}

// x with the strides of the filters' memory format, where it lies in both: single-pixel filters of one
// channel cannot tell theirs, and what follows them can.
at::Tensor in_format_of(const LaneConv2d& conv, const at::Tensor& x) {
  const MemoryFormat format = lanes::format_of(conv.weight.value());
  return x.dim() == 5 && lanes::lies_in(x, format) ? lanes::with_strides_of(x, format) : x;
}

class Noop final : public SeedModule {
 public:
  explicit Noop(const SeedBuild& /*build*/) {}
  static int64_t num_parameters(const SeedShape& /*shape*/) { return 0; }
  static double held(const SeedShape& /*shape*/, at::Device /*device*/) { return 1; }
  static PythonSeed python(const SeedShape& /*shape*/) {
    return {.type = {"Noop", R"py(class Noop(nn.Module):
    """x"""

    def forward(self, x):
        return x
)py"},
            .arguments = ""};
  }

  at::Tensor forward(const at::Tensor& x, Mode /*mode*/) override { return x; }
  std::vector<NamedParameter> parameters() override { return {}; }
  void initialise(const SeedInit& /*init*/) override {}
};

class Norm final : public SeedModule {
 public:
  explicit Norm(const SeedBuild& build)
      : norm_(make_norm(build)),
        mix_({build.entries, 1}, build.options, build.options.dtype().toScalarType()) {}
  static int64_t num_parameters(const SeedShape& shape) { return norm_parameters(shape.channels) + 1; }
  static constexpr int32_t kPreference = 5;
  static double held(const SeedShape& /*shape*/, at::Device /*device*/) { return 3; }
  static PythonSeed python(const SeedShape& shape) {
    return {.type = {"Norm", R"py(class Norm(nn.Module):
    """x + tanh(mix) (norm(x) - x)"""

    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.mix = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return x + torch.tanh(self.mix) * (self.norm(x) - x)
)py"},
            .arguments = with_groups(shape)};
  }

  at::Tensor forward(const at::Tensor& x, Mode /*mode*/) override {
    const auto [through, branch] = lane_fork(x);
    return lane_mix(through, norm_.forward(branch), lane_curve(mix_.value(), Curve::kTanh));
  }
  std::vector<NamedParameter> parameters() override {
    std::vector<NamedParameter> named;
    append_parameters(named, "norm.", norm_.parameters());
    named.push_back({"mix", &mix_});
    return named;
  }
  void initialise(const SeedInit& init) override {
    begin_norm(init, "norm", norm_);
    init.fill({"mix", &mix_}, 0);
  }

 private:
  LaneGroupNorm norm_;
  LaneParameter mix_;  // [E,1]
};

class Attention final : public SeedModule {
 public:
  explicit Attention(const SeedBuild& build)
      : squeeze_({.lanes = build.entries,
                  .in_features = build.shape.channels,
                  .out_features = reduced(build.shape.channels)},
                 build.options),
        excite_({.lanes = build.entries,
                 .in_features = reduced(build.shape.channels),
                 .out_features = build.shape.channels},
                build.options) {}
  static int64_t reduced(int64_t channels) { return std::max<int64_t>(1, channels / 4); }
  static int64_t num_parameters(const SeedShape& shape) {
    const int64_t features = reduced(shape.channels);
    return features * (shape.channels + 1) + shape.channels * (features + 1);
  }
  static constexpr int32_t kPreference = 2;
  static double held(const SeedShape& /*shape*/, at::Device /*device*/) { return 2; }
  static PythonSeed python(const SeedShape& shape) {
    return {.type = {"Attention", R"py(class Attention(nn.Module):
    """Squeeze and excite: every channel times a number in (0, 2) that depends on all of them."""

    def __init__(self, channels, between):
        super().__init__()
        self.squeeze = nn.Linear(channels, between)
        self.excite = nn.Linear(between, channels)

    def forward(self, x):
        features = F.relu(self.squeeze(x.mean(dim=(2, 3))))
        return x * (2 * torch.sigmoid(self.excite(features)))[:, :, None, None]
)py"},
            .arguments = fmt::format("{}, between={}", shape.channels, reduced(shape.channels))};
  }

  at::Tensor forward(const at::Tensor& x, Mode /*mode*/) override {
    const auto [through, branch] = lane_fork(x);
    // 2 sigmoid(0) is 1, and rounds nothing.
    return lane_scale(through, lane_squeeze(branch, squeeze_map(squeeze_), squeeze_map(excite_), 2));
  }
  std::vector<NamedParameter> parameters() override {
    std::vector<NamedParameter> named;
    append_parameters(named, "squeeze.", squeeze_.parameters());
    append_parameters(named, "excite.", excite_.parameters());
    return named;
  }
  void initialise(const SeedInit& init) override {
    init.kaiming_uniform({"squeeze.weight", &squeeze_.weight});
    init.uniform_like({"squeeze.bias", &squeeze_.bias}, squeeze_.weight);
    init.fill({"excite.weight", &excite_.weight}, 0);
    init.fill({"excite.bias", &excite_.bias}, 0);
  }

 private:
  LaneLinear squeeze_;
  LaneLinear excite_;
};

class Depthwise final : public SeedModule {
 public:
  explicit Depthwise(const SeedBuild& build)
      : depthwise_(make_conv(build, {.from = build.shape.channels,
                                     .to = build.shape.channels,
                                     .kernel = 3,
                                     .groups = build.shape.channels})),
        pointwise_(make_conv(build, {.from = build.shape.channels, .to = build.shape.channels})),
        norm_(make_norm(build)) {}
  static int64_t num_parameters(const SeedShape& shape) {
    return shape.channels * (9 + shape.channels) + norm_parameters(shape.channels);
  }
  static constexpr int32_t kPreference = 3;
  static double held(const SeedShape& /*shape*/, at::Device /*device*/) { return 4; }
  static PythonSeed python(const SeedShape& shape) {
    return {.type = {"Depthwise", R"py(class Depthwise(nn.Module):
    """x + norm(relu(1x1(3x3 depthwise(x))))"""

    def __init__(self, channels, groups):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return x + self.norm(F.relu(self.pointwise(self.depthwise(x))))
)py"},
            .arguments = with_groups(shape)};
  }

  at::Tensor forward(const at::Tensor& x, Mode /*mode*/) override {
    const auto [through, branch] = lane_fork(x);
    return normed_beside(through, pointwise_.forward(depthwise_.forward(branch)), Activation::kRelu, norm_);
  }
  std::vector<NamedParameter> parameters() override {
    std::vector<NamedParameter> named;
    append_parameters(named, "depthwise.", depthwise_.parameters());
    append_parameters(named, "pointwise.", pointwise_.parameters());
    append_parameters(named, "norm.", norm_.parameters());
    return named;
  }
  void initialise(const SeedInit& init) override {
    init.kaiming_uniform({"depthwise.weight", &depthwise_.weight});
    init.kaiming_uniform({"pointwise.weight", &pointwise_.weight});
    begin_last_norm(init, "norm", norm_);
  }

 private:
  LaneConv2d depthwise_;
  LaneConv2d pointwise_;
  LaneGroupNorm norm_;
};

class Bottleneck final : public SeedModule {
 public:
  explicit Bottleneck(const SeedBuild& build)
      : down_(make_conv(build, {.from = build.shape.channels, .to = narrow(build.shape.channels)})),
        conv_(make_conv(
            build, {.from = narrow(build.shape.channels), .to = narrow(build.shape.channels), .kernel = 3})),
        up_(make_conv(build, {.from = narrow(build.shape.channels), .to = build.shape.channels})),
        norm_(make_norm(build)) {}
  static int64_t narrow(int64_t channels) { return std::max<int64_t>(8, channels / 4); }
  static int64_t num_parameters(const SeedShape& shape) {
    const int64_t between = narrow(shape.channels);
    return between * (2 * shape.channels + 9 * between) + norm_parameters(shape.channels);
  }
  static constexpr int32_t kPreference = 4;
  static double held(const SeedShape& shape, at::Device /*device*/) {
    return 3 + 2 * static_cast<double>(narrow(shape.channels)) / static_cast<double>(shape.channels);
  }
  static PythonSeed python(const SeedShape& shape) {
    return {.type = {"Bottleneck", R"py(class Bottleneck(nn.Module):
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
            .arguments = fmt::format("{}, between={}, groups={}", shape.channels, narrow(shape.channels),
                                     group_norm_groups(shape.channels))};
  }

  at::Tensor forward(const at::Tensor& x, Mode /*mode*/) override {
    const auto [through, branch] = lane_fork(x);
    const at::Tensor y = up_.forward(conv_.forward(down_.forward(in_format_of(conv_, branch))));
    return normed_beside(through, y, Activation::kNone, norm_);
  }
  std::vector<NamedParameter> parameters() override {
    std::vector<NamedParameter> named;
    append_parameters(named, "down.", down_.parameters());
    append_parameters(named, "conv.", conv_.parameters());
    append_parameters(named, "up.", up_.parameters());
    append_parameters(named, "norm.", norm_.parameters());
    return named;
  }
  void initialise(const SeedInit& init) override {
    init.kaiming_uniform({"down.weight", &down_.weight});
    init.kaiming_uniform({"conv.weight", &conv_.weight});
    init.kaiming_uniform({"up.weight", &up_.weight});
    begin_last_norm(init, "norm", norm_);
  }

 private:
  LaneConv2d down_;
  LaneConv2d conv_;
  LaneConv2d up_;
  LaneGroupNorm norm_;
};

class ConvSmall final : public SeedModule {
 public:
  explicit ConvSmall(const SeedBuild& build)
      : conv_(make_conv(build, {.from = build.shape.channels, .to = build.shape.channels})),
        norm_(make_norm(build)) {}
  static int64_t num_parameters(const SeedShape& shape) {
    return shape.channels * shape.channels + norm_parameters(shape.channels);
  }
  static constexpr int32_t kPreference = 6;
  static double held(const SeedShape& /*shape*/, at::Device /*device*/) { return 3; }
  static PythonSeed python(const SeedShape& shape) {
    return {.type = {"ConvSmall", R"py(class ConvSmall(nn.Module):
    """x + norm(relu(1x1(x)))"""

    def __init__(self, channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return x + self.norm(F.relu(self.conv(x)))
)py"},
            .arguments = with_groups(shape)};
  }

  at::Tensor forward(const at::Tensor& x, Mode /*mode*/) override {
    const auto [through, branch] = lane_fork(x);
    return normed_beside(through, conv_.forward(branch), Activation::kRelu, norm_);
  }
  std::vector<NamedParameter> parameters() override {
    std::vector<NamedParameter> named;
    append_parameters(named, "conv.", conv_.parameters());
    append_parameters(named, "norm.", norm_.parameters());
    return named;
  }
  void initialise(const SeedInit& init) override {
    init.kaiming_uniform({"conv.weight", &conv_.weight});
    begin_last_norm(init, "norm", norm_);
  }

 private:
  LaneConv2d conv_;
  LaneGroupNorm norm_;
};

// conv_light and conv_heavy: so many times 3x3, GroupNorm and ReLU, beside x; the last norm comes last.
template <size_t kRounds>
class Conv final : public SeedModule {
 public:
  explicit Conv(const SeedBuild& build) {
    for (size_t i = 0; i < kRounds; ++i)
      rounds_.push_back(
          {make_conv(build, {.from = build.shape.channels, .to = build.shape.channels, .kernel = 3}),
           make_norm(build)});
  }
  static int64_t num_parameters(const SeedShape& shape) {
    return static_cast<int64_t>(kRounds) *
           (9 * shape.channels * shape.channels + norm_parameters(shape.channels));
  }
  static constexpr int32_t kPreference = kRounds == 1 ? 1 : 7;
  static double held(const SeedShape& /*shape*/, at::Device /*device*/) {
    return 1 + 2 * static_cast<double>(kRounds);
  }
  static PythonSeed python(const SeedShape& shape) {
    if constexpr (kRounds == 1)
      return {.type = {"ConvLight", R"py(class ConvLight(nn.Module):
    """x + norm(relu(3x3(x)))"""

    def __init__(self, channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return x + self.norm(F.relu(self.conv(x)))
)py"},
              .arguments = with_groups(shape)};
    else
      return {.type = {"ConvHeavy", R"py(class ConvHeavy(nn.Module):
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
              .arguments = with_groups(shape)};
  }

  at::Tensor forward(const at::Tensor& x, Mode /*mode*/) override {
    auto [through, y] = lane_fork(x);
    for (size_t i = 0; i + 1 < kRounds; ++i)
      y = rounds_[i].norm.forward(rounds_[i].conv.forward(y), {}, Activation::kRelu);
    return normed_beside(through, rounds_.back().conv.forward(y), Activation::kRelu, rounds_.back().norm);
  }
  std::vector<NamedParameter> parameters() override {
    std::vector<NamedParameter> named;
    for (size_t i = 0; i < kRounds; ++i) {
      append_parameters(named, prefix(i, "conv") + ".", rounds_[i].conv.parameters());
      append_parameters(named, prefix(i, "norm") + ".", rounds_[i].norm.parameters());
    }
    return named;
  }
  void initialise(const SeedInit& init) override {
    for (size_t i = 0; i < kRounds; ++i) {
      init.kaiming_uniform({prefix(i, "conv") + ".weight", &rounds_[i].conv.weight});
      (i + 1 < kRounds ? begin_norm : begin_last_norm)(init, prefix(i, "norm"), rounds_[i].norm);
    }
  }

 private:
  struct Round {
    LaneConv2d conv;
    LaneGroupNorm norm;
  };
  static std::string prefix(size_t round, const char* layer) {
    return kRounds == 1 ? layer : layer + std::to_string(round);
  }

  std::vector<Round> rounds_;
};

// Each class says all that others know of its kind.
template <class Module>
Blueprint blueprint(const char* name) {
  Blueprint made{.name = name,
                 .num_parameters = &Module::num_parameters,
                 .make = [](const SeedBuild& build) { return std::make_unique<Module>(build); },
                 .python = &Module::python,
                 .held = &Module::held};
  if constexpr (requires { Module::kPreference; }) made.preference = Module::kPreference;
  return made;
}

}  // namespace

std::vector<Blueprint> built_in_blueprints() {
  return {blueprint<Noop>("noop"),
          blueprint<Norm>("norm"),
          blueprint<Attention>("attention"),
          blueprint<Depthwise>("depthwise"),
          blueprint<Bottleneck>("bottleneck"),
          blueprint<ConvSmall>("conv_small"),
          blueprint<Conv<1>>("conv_light"),
          blueprint<Conv<2>>("conv_heavy")};
}

}  // namespace espalier::grow
