// How hosts and blueprints describe themselves in Python, for `espalier export`: text of plain PyTorch. A
// host or blueprint that does not is trained like any other, but cannot be exported.
#pragma once

#include <string>
#include <vector>

namespace espalier::grow {

// A class of the generated file. Two of one name must be the same text.
struct PythonClass {
  std::string name;        // "ConvLight"
  std::string definition;  // from "class ConvLight(nn.Module):" to its last line, with a newline at its end
};

// A seed: [N,C,H,W] to the same. Its parameters have the names that SeedModule::parameters() gives them.
struct PythonSeed {
  PythonClass type;
  std::string arguments;  // how one is made: "8, groups=8"
};

// A part of the forward pass, in its order.
struct PythonStep {
  std::string slot = {};     // not empty: the slot that lies here; the rest is empty
  std::string module = {};   // a member that it brings: "block0"; empty: none
  std::string made = {};     // how it is made: "Block(3, 8)"
  std::string forward = {};  // what happens: "x = self.block0(x)"
};

// A host: images [N,C,H,W], normalised, to logits [N,K], both called x. Members have the names of
// Host::parameters() and Host::buffers(): "block0.conv.weight" is of the member block0.
struct PythonHost {
  std::vector<PythonClass> classes;
  std::vector<PythonStep> steps;
};

}  // namespace espalier::grow
