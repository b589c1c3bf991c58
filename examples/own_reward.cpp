// A reward of one's own: a step is worth the points of accuracy that it gained, minus a fee for every seed
// that the network holds. A policy learns from it, and every other controller is measured by it too.
#include "examples/small_job.h"

using namespace espalier;

class Fees final : public policy::RewardRule {
 public:
  std::vector<std::string> terms() const override { return {"gain", "fees"}; }  // as logs call them

  // On the device where controllers act, for all lanes at once: terms are [L,2].
  void compute(const policy::RewardInput& input, const at::Tensor& terms) override {
    const at::Tensor accuracy =
        input.after.lanes.select(1, static_cast<int64_t>(policy::LaneReading::kValidationAccuracy));
    terms.select(1, 0).copy_((accuracy - input.accuracy_before) * 100);
    terms.select(1, 1).copy_(policy::holds_seed(input.after.states).sum(1) * -0.05);
  }
};

int main() {
  // By its name it is also a choice of --reward, in a program that runs jobs.
  policy::rewards().add({.name = "fees",
                         .summary = "accuracy gained, less a fee for each seed",
                         .make = [](const policy::RewardFrame&) { return std::make_unique<Fees>(); }});
  train::PpoConfig options;
  options.population = small_job();
  options.reward.rule = "fees";
  options.policy.encoder_size = options.policy.hidden_size = 16;
  train::PpoTrainer trainer(options,
                            {train::shard_on(options.population.devices[0], options.population, {})});
  for (int round = 1; round <= 2; ++round) {
    const train::EpisodeRecord episode = trainer.train_round().episode;
    double fees = 0;
    for (const std::vector<double>& terms : episode.terms) fees += terms[1];
    std::printf("round %d: mean return %.2f, fees %.2f\n", round, episode.mean_return(), fees);
    if (fees > 0) return 1;
  }
  return 0;
}
