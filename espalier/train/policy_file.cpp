#include "espalier/train/policy_file.h"

#include <array>
#include <charconv>
#include <map>

#include "espalier/core/error.h"
#include "espalier/policy/checkpoint.h"

namespace espalier::train {
namespace {

constexpr const char* kKind = "espalier.policy";

// Each number once: its key, and where it is in the options.
struct Number {
  const char* key;
  int64_t& (*of)(policy::NetworkOptions& options);
};
using Options = policy::NetworkOptions;
constexpr std::array<Number, 6> kNumbers{{
    {"num_slots", [](Options& options) -> int64_t& { return options.space.num_slots; }},
    {"num_blueprints", [](Options& options) -> int64_t& { return options.space.num_blueprints; }},
    {"num_features", [](Options& options) -> int64_t& { return options.num_features; }},
    {"embedding_size", [](Options& options) -> int64_t& { return options.embedding_size; }},
    {"encoder_size", [](Options& options) -> int64_t& { return options.encoder_size; }},
    {"hidden_size", [](Options& options) -> int64_t& { return options.hidden_size; }},
}};

}  // namespace

void write_policy(const std::string& path, const std::vector<policy::NamedTensor>& state,
                  const policy::NetworkOptions& network, const Metadata& more) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const policy::NamedTensor& named : state) tensors.emplace_back(named.name, named.tensor.detach());
  Metadata metadata = more;
  metadata["kind"] = kKind;
  Options options = network;
  for (const Number& number : kNumbers) metadata[number.key] = std::to_string(number.of(options));
  lanes::write_tensors(path, tensors, metadata);
}

policy::NetworkOptions network_options_of(const lanes::TensorFile& file) {
  const auto kind = file.metadata.find("kind");
  if (kind == file.metadata.end() || kind->second != kKind)
    fail("'{}': is no policy of ours: its metadata has no kind '{}'", file.path, kKind);
  Options options;
  for (const Number& number : kNumbers) {
    const auto found = file.metadata.find(number.key);
    if (found == file.metadata.end()) fail("'{}': its metadata has no '{}'", file.path, number.key);
    const std::string& text = found->second;
    int64_t& value = number.of(options);
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // Beyond a million a damaged number would ask for more memory than there is.
    if (error != std::errc() || stop != text.data() + text.size() || value < 1 || value > 1'000'000)
      fail("'{}': metadata '{}': want a number from 1 to 1000000, got '{}'", file.path, number.key, text);
  }
  return options;
}

void load_policy(const lanes::TensorFile& file, const std::vector<policy::NamedTensor>& state) {
  network_options_of(file);  // that it is a policy at all
  policy::load_state(file.tensors, state, "'" + file.path + "'");
}

}  // namespace espalier::train
