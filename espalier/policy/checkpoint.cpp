#include "espalier/policy/checkpoint.h"

#include <c10/core/GradMode.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier::policy {

std::vector<NamedTensor> state_of(const PolicyNetwork& network, const Ppo& ppo, const Acting& acting) {
  std::vector<NamedTensor> state = network.parameters();
  for (NamedTensor& named : ppo.state()) state.push_back(std::move(named));
  for (NamedTensor& named : acting.state()) state.push_back(std::move(named));
  return state;
}

void load_state(const std::map<std::string, at::Tensor>& from, const std::vector<NamedTensor>& into,
                const std::string& where) {
  for (const auto& [name, tensor] : into) {
    const auto found = from.find(name);
    if (found == from.end()) fail("{}: tensor '{}' is missing", where, name);
    if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type())
      fail(
          "{}: tensor '{}': want {} {}, got {} {}; was the policy made for other slots, blueprints or sizes?",
          where, name, c10::str(tensor.sizes()), c10::toString(tensor.scalar_type()),
          c10::str(found->second.sizes()), c10::toString(found->second.scalar_type()));
  }
  for (const auto& [name, tensor] : from)
    if (std::ranges::find(into, name, &NamedTensor::name) == into.end())
      fail("{}: tensor '{}' is none of a policy's", where, name);
  const c10::NoGradGuard no_grad;
  for (const auto& [name, tensor] : into) tensor.copy_(from.at(name));
}

}  // namespace espalier::policy
