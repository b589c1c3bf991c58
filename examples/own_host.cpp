// A host of one's own: two convolutions with norms, a slot between them, and a classifier.
#include "espalier/grow.h"
#include "espalier/lanes.h"
#include "examples/small_job.h"

using namespace espalier;

class TwoConvs final : public grow::Host {
 public:
  explicit TwoConvs(const grow::HostBuild& build)
      : Host(build, {{.name = "between",
                      .channels = 16,
                      .height = build.frame.height / 2,
                      .width = build.frame.width / 2}}),
        first_({build.frame.lanes, build.frame.in_channels, 16, 3, {.padding = 1}}, build.options,
               build.compute),
        second_({build.frame.lanes, 16, 16, 3, {.padding = 1}}, build.options, build.compute),
        first_norm_(build.frame.lanes, 16, build.options),
        second_norm_(build.frame.lanes, 16, build.options),
        classifier_({build.frame.lanes, 16, build.frame.num_classes}, build.options) {
    add("first", first_);
    add("first_norm", first_norm_);
    add("second", second_);
    add("second_norm", second_norm_);
    add("classifier", classifier_);
    initialise(build.frame.seed);
  }

  at::Tensor forward(const at::Tensor& x, const grow::HostContext& context) override {
    const auto relu = lanes::Activation::kRelu;
    at::Tensor h = context.norm(first_norm_, first_.forward(enter(x)), relu, lanes::Pooling::k2x2);
    h = context.grow(0, std::move(h));
    h = context.norm(second_norm_, second_.forward(h), relu);
    return classifier_.forward_pooled(h);
  }

 private:
  lanes::LaneConv2d first_, second_;
  lanes::LaneBatchNorm2d first_norm_, second_norm_;
  lanes::LaneLinear classifier_;
};

int main() {
  // By its name it is also a choice of --host, in a program that runs jobs.
  grow::hosts().add(
      {.name = "two_convs",
       .make = [](const grow::HostBuild& build) { return std::make_unique<TwoConvs>(build); },
       // For `espalier plan`: 16 channels of a whole image, and four times of a quarter of it.
       .held = [](const grow::HostFrame& frame,
                  at::Device) { return static_cast<double>(16 * 2 * frame.height * frame.width); }});
  train::PopulationConfig options = small_job();
  options.host = "two_convs";
  options.controller = "heuristic";
  options.epochs = 10;
  train::PopulationTrainer population(options);
  return train_all(population, *train::controller_for(options)) > 0.12 ? 0 : 1;
}
