// Hosts by name: what `--host` offers. Those that come with the library, and what a program adds.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "espalier/core/registry.h"
#include "espalier/grow/export/python_module.h"
#include "espalier/grow/host/interface.h"
#include "espalier/grow/host/shape.h"

namespace espalier::grow {

struct HostKind {
  std::string name;
  HostMaker make;
  // What the plan of memory knows of its activations; a program's own host says it by `held`.
  std::optional<CnnHostOptions> cnn = std::nullopt;
  // Python for data of this kind; without it networks of this host cannot be exported.
  std::function<PythonHost(const HostFrame&)> python = {};
  // For the plan of memory: values that a training step of the bare host keeps of one sample of a lane, all
  // layers together. Without it the plan says that it leaves them out.
  std::function<double(const HostFrame&, at::Device)> held = {};
};

// tiny            base  8, 2 blocks, all pooled: too small for its task, so that growth shows
// tiny_wide       base 16, 2 blocks, all pooled: where a policy that learned on tiny is tried
// cifar_baseline  base  8, 3 blocks, all pooled: small enough for 128 lanes in a step of milliseconds
// cifar_scale     base  8, 5 blocks, all pooled: down to 1x1
// cifar_wide      base 32, 3 blocks, all pooled: learns CIFAR-10 to about 76 %
// cifar_deep      base 32, 5 blocks, the first 3 pooled: the last two keep 4x4, so that 3x3 filters still
// have
//                 neighbours to look at
Registry<HostKind>& hosts();

}  // namespace espalier::grow
