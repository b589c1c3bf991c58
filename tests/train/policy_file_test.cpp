#include "espalier/train/policy_file.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/policy/checkpoint.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::train {
namespace {

using support::TemporaryFolder;

constexpr policy::ActionSpace kSpace{.num_slots = 2, .num_blueprints = 5};

struct Policy {
  explicit Policy(const policy::NetworkOptions& options)
      : rules(options.space, at::ones({options.space.num_slots}, at::kBool), 2),
        sampler(options.space, rules.blueprints()),
        network(options),
        ppo(network, sampler, {}),
        acting(network, rules, sampler, ppo.values(), {.lanes = 3, .episode_length = 4}) {}

  std::vector<policy::NamedTensor> state() const { return policy::state_of(network, ppo, acting); }

  policy::MaskRules rules;
  policy::ActionSampler sampler;
  policy::PolicyNetwork network;
  policy::Ppo ppo;
  policy::Acting acting;
};

policy::NetworkOptions options(uint64_t seed) {
  return {.space = kSpace,
          .num_features = policy::num_features(kSpace.num_slots),
          .embedding_size = 3,
          .encoder_size = 7,
          .hidden_size = 6,
          .seed = seed};
}

TEST(PolicyFile, BringsAPolicyBackFromTheFileAlone) {
  const TemporaryFolder folder;
  const std::string path = folder / "policy.safetensors";
  const Policy written(options(1));
  write_policy(path, written.state(), written.network.options(), {{"round", "12"}});
  const lanes::TensorFile file = lanes::read_tensors(path);
  EXPECT_EQ(file.metadata.at("round"), "12");
  const Policy read(network_options_of(file));
  load_policy(file, read.state());
  const auto want = written.state(), got = read.state();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(at::equal(got[i].tensor, want[i].tensor)) << want[i].name;
}

TEST(PolicyFile, RefusesOtherFilesInOneSentence) {
  const TemporaryFolder folder;
  const std::string path = folder / "policy.safetensors";
  const Policy policy(options(1));
  const auto refused = [&](const Metadata& metadata) {
    lanes::write_tensors(path, {{"value.bias", at::zeros({1})}}, metadata);
    return lanes::read_tensors(path);
  };
  EXPECT_ERROR(load_policy(refused({}), policy.state()), Error, path, "is no policy of ours");
  EXPECT_ERROR(network_options_of(refused({{"kind", "espalier.policy"}})), Error, path, "'num_slots'");
  write_policy(path, policy.state(), policy.network.options());
  lanes::TensorFile file = lanes::read_tensors(path);
  file.metadata["hidden_size"] = "-3";
  EXPECT_ERROR(network_options_of(file), Error, path, "'hidden_size'", "'-3'");
  policy::NetworkOptions wider = options(1);
  wider.hidden_size = 9;
  EXPECT_ERROR(load_policy(lanes::read_tensors(path), Policy(wider).state()), Error, path,
               "'lstm.input_weight'", "[36, 7]", "[24, 7]");
}

}  // namespace
}  // namespace espalier::train
