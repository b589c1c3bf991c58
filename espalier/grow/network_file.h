// One grown network by itself: out of a stack, in a file, and back into a lane.
//
// Kept true: a network that went through a file and into a lane computes the same bits there; tensors are
// named as the generated Python names them ("block0.conv.weight", "r0c1.seed.conv.weight",
// "r0c1.gate.hidden.weight"), f32 on the CPU. A gate is among them where the seed blends with GATE.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "espalier/grow/description.h"
#include "espalier/grow/network_stack.h"

namespace espalier::grow {

struct GrownNetwork {
  NetworkDescription description;
  std::map<std::string, at::Tensor> tensors;
  std::string name = {};  // its file's, without the ending, where it was read from a folder of them
};

// What one lane of a stack is now. described: all but its seeds, which are filled in.
GrownNetwork network_of(NetworkStack& stack, int64_t lane, const NetworkDescription& described);

// How an exported network calls a value of NetworkStack::lane_values(): "host.block0.conv.weight" ->
// "block0.conv.weight". seed: of the slot that the value's name begins with; none for the host's.
std::string exported_name(const std::string& value, const SeedDescription* seed);

// What computes: without seeds that only learn beside the network.
GrownNetwork only_felt(const GrownNetwork& network);

// Whole or not at all.
void write_network(const std::string& path, const GrownNetwork& network);
// Fails with one sentence for a file that is damaged, or no network.
GrownNetwork read_network(const std::string& path);

// What the host of so many such networks is told.
HostFrame frame_of(const NetworkDescription& network, int64_t lanes);

// [S] the states of a lane that is this network. Fails where the stack has no such slot or blueprint.
std::vector<SlotState> states_of(const GrownNetwork& network, const NetworkStack& stack);

// Writes the values into a lane whose seeds stand as states_of() says. Fails, naming the tensor, where one is
// missing, of another shape, or of nothing that the lane has. After the last one, NetworkStack::refresh().
void write_values(const GrownNetwork& network, NetworkStack& stack, int64_t lane);

// Lane i becomes network i of a stack that holds nothing yet.
void become(NetworkStack& stack, const std::vector<GrownNetwork>& networks);

}  // namespace espalier::grow
