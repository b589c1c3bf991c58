// A policy that learns, as named tensors: what a run needs to go on where it was, between two rounds.
//
// Kept true: loading changes everything or nothing: names, shapes and types are compared first, and what does
// not fit is refused with one sentence.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "espalier/policy/acting.h"
#include "espalier/policy/learn/ppo.h"
#include "espalier/policy/network.h"

namespace espalier::policy {

// The network, Adam's moments, both normalisers, the round. The tensors themselves, not copies.
std::vector<NamedTensor> state_of(const PolicyNetwork& network, const Ppo& ppo, const Acting& acting);

// Copies `from`, on any device, into the tensors of `into` by their names. where: what begins the sentence of
// an error, such as the file's name.
void load_state(const std::map<std::string, at::Tensor>& from, const std::vector<NamedTensor>& into,
                const std::string& where);

}  // namespace espalier::policy
