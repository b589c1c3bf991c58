#include "espalier/train/control/policy_file.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/policy/checkpoint.h"
#include "espalier/train/control/policy_header.h"
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

  std::vector<NamedTensor> state() const { return policy::state_of(network, ppo, acting); }

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
  const TensorFile file = read_tensors(path);
  EXPECT_EQ(file.metadata.at("round"), "12");
  const Policy read(network_options_of(file));
  load_policy(file, read.state());
  const auto want = written.state(), got = read.state();
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_TRUE(at::equal(got[i].tensor, want[i].tensor)) << want[i].name;
}

// A damaged number must not be what a network is allocated by.
TEST(PolicyFile, RefusesSizesThatItsTensorsDoNotHold) {
  const TemporaryFolder folder;
  const std::string path = folder / "policy.safetensors";
  const Policy policy(options(1));
  write_policy(path, policy.state(), policy.network.options());
  for (const char* key :
       {"num_slots", "num_blueprints", "num_features", "embedding_size", "encoder_size", "hidden_size"}) {
    TensorFile file = read_tensors(path);
    for (const char* text : {"900000", "1000000"}) {
      file.metadata[key] = text;
      EXPECT_ERROR(network_options_of(file), Error, path, "at least", "the file is damaged");
    }
    for (const char* text : {"", "1000001", "0", "7x", "99999999999999999999", "1e3"}) {
      file.metadata[key] = text;
      EXPECT_ERROR(network_options_of(file), Error, path, fmt::format("'{}'", key),
                   fmt::format("'{}'", text));
    }
  }
}

TEST(PolicyFile, RefusesRoundsThatAreNone) {
  for (const char* text : {"", "x", "-1", "3 ", "99999999999999999999", "1.0"})
    EXPECT_ERROR(policy_rounds({{"rounds", text}}, "p.safetensors"), Error, "'p.safetensors'", "'rounds'",
                 fmt::format("'{}'", text));
  EXPECT_ERROR(policy_rounds({}, "p.safetensors"), Error, "'p.safetensors'", "no 'rounds'");
  EXPECT_EQ(policy_rounds(with_rounds({}, 12), "p.safetensors"), 12);
}

TEST(PolicyFile, RefusesOtherFilesInOneSentence) {
  const TemporaryFolder folder;
  const std::string path = folder / "policy.safetensors";
  const Policy policy(options(1));
  const auto refused = [&](const Metadata& metadata) {
    write_tensors(path, {{"value.bias", at::zeros({1})}}, metadata);
    return read_tensors(path);
  };
  EXPECT_ERROR(load_policy(refused({}), policy.state()), Error, path, "is no policy of ours");
  EXPECT_ERROR(network_options_of(refused({{"kind", "espalier.policy"}})), Error, path, "'num_slots'");
  write_policy(path, policy.state(), policy.network.options());
  TensorFile file = read_tensors(path);
  file.metadata["hidden_size"] = "-3";
  EXPECT_ERROR(network_options_of(file), Error, path, "'hidden_size'", "'-3'");
  policy::NetworkOptions wider = options(1);
  wider.hidden_size = 9;
  EXPECT_ERROR(load_policy(read_tensors(path), Policy(wider).state()), Error, path, "'lstm.input_weight'",
               "[36, 7]", "[24, 7]");
}

}  // namespace
}  // namespace espalier::train
