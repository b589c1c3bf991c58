// A host of one's own: two convolutions with norms, a slot between them, and a classifier.
#include "espalier/grow.h"
#include "espalier/lanes.h"
#include "examples/small_job.h"

using namespace espalier;

class TwoConvs final : public grow::Host {
 public:
  static constexpr int64_t kFilters = 16;

  explicit TwoConvs(const grow::HostBuild& build)
      : Host(build.frame, {slot_in(build.frame)}, build.options.device(), build.compute),
        first_(conv(build, build.frame.in_channels), build.options, build.compute),
        second_(conv(build, kFilters), build.options, build.compute),
        first_norm_(build.frame.lanes, kFilters, build.options),
        second_norm_(build.frame.lanes, kFilters, build.options),
        classifier_(
            {.lanes = build.frame.lanes, .in_features = kFilters, .out_features = build.frame.num_classes},
            build.options) {
    initialise(build.frame.seed);
  }

  at::Tensor forward(const at::Tensor& x, const grow::HostContext& context) override {
    at::Tensor h = first_norm_.forward(first_.forward(enter(x)), context.mode, context.mask,
                                       lanes::Activation::kRelu, lanes::Pooling::k2x2);
    if (context.growth && context.growth->holds(0)) h = context.growth->grow(0, std::move(h));
    h = second_norm_.forward(second_.forward(h), context.mode, context.mask, lanes::Activation::kRelu);
    return classifier_.forward(lanes::lane_global_average_pool(h));
  }

  std::vector<lanes::NamedParameter> parameters() override {
    std::vector<lanes::NamedParameter> named;
    lanes::append_parameters(named, "first.", first_.parameters());
    lanes::append_parameters(named, "first_norm.", first_norm_.parameters());
    lanes::append_parameters(named, "second.", second_.parameters());
    lanes::append_parameters(named, "second_norm.", second_norm_.parameters());
    lanes::append_parameters(named, "classifier.", classifier_.parameters());
    return named;
  }
  std::vector<Buffer> buffers() const override {
    return {{"first_norm.running_mean", first_norm_.running_mean},
            {"first_norm.running_var", first_norm_.running_var},
            {"second_norm.running_mean", second_norm_.running_mean},
            {"second_norm.running_var", second_norm_.running_var}};
  }

 private:
  static grow::SlotSpec slot_in(const grow::HostFrame& frame) {
    return {.name = "between", .channels = kFilters, .height = frame.height / 2, .width = frame.width / 2};
  }
  static lanes::LaneConv2dOptions conv(const grow::HostBuild& build, int64_t channels) {
    return {.lanes = build.frame.lanes,
            .in_channels = channels,
            .out_channels = kFilters,
            .geometry = {.padding = 1}};
  }

  void write_first_values(const grow::HostInit& init) override {
    for (const lanes::NamedParameter& named : parameters()) {
      if (named.name.ends_with("norm.weight"))
        init.fill(named.parameter->storage(), 1);
      else if (named.name.ends_with("norm.bias"))
        init.fill(named.parameter->storage(), 0);
      else if (named.name == "classifier.bias")
        init.uniform_like(named, classifier_.weight);
      else
        init.kaiming_uniform(named);
    }
    for (const Buffer& buffer : buffers()) init.fill(buffer.tensor, buffer.name.ends_with("var") ? 1 : 0);
  }

  lanes::LaneConv2d first_, second_;
  lanes::LaneBatchNorm2d first_norm_, second_norm_;
  lanes::LaneLinear classifier_;
};

int main() {
  // By its name it is also a choice of --host, in a program that runs jobs.
  grow::hosts().add({.name = "two_convs",
                     .make = [](const grow::HostBuild& build) { return std::make_unique<TwoConvs>(build); }});
  train::PopulationConfig options = small_job();
  options.host = "two_convs";
  options.controller = "heuristic";
  options.epochs = 10;
  train::PopulationTrainer population(options);
  const auto controller = train::controller_for(options, population.population(0).blueprints());
  return train_all(population, *controller) > 0.12 ? 0 : 1;
}
