// Kinds of seeds: what each computes, how many parameters it has, how it begins.
//
// Kept true: a seed keeps the sizes and the layout of what it is given; its parameters are known by number
// before anything is built; entry e of a module depends on entry e of its input and parameters alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/grow/export/python_module.h"
#include "espalier/lanes/norm/layer.h"
#include "espalier/lanes/parameter.h"
#include "espalier/tensor/layout.h"

namespace espalier::grow {

struct SeedShape {
  int64_t channels = 1;
  int64_t height = 1;
  int64_t width = 1;
};

// What a module is built for: a stack of so many entries, [E,B,C,H,W].
struct SeedBuild {
  SeedShape shape;
  int64_t entries = 1;
  at::TensorOptions options;            // device and master type
  at::ScalarType compute = at::kFloat;  // type of activations and convolutions
  MemoryFormat format = MemoryFormat::kChannelsLast;
};

// Writes the first values of one entry. They depend on (seed, lane, name, parameter) alone, whatever entry
// the seed got. Every parameter has to be written: the entry may have been another seed's.
class SeedInit {
 public:
  // name: of the seed, "r0c1.conv_light.2": the second that grew there.
  SeedInit(uint64_t seed, int64_t lane, std::string name, int64_t entry);

  void kaiming_uniform(const lanes::NamedParameter& weight) const;  // torch's default of weights
  // torch's default of a bias [E,K] that goes with such a weight.
  void uniform_like(const lanes::NamedParameter& bias, const lanes::LaneParameter& weight) const;
  void fill(const lanes::NamedParameter& parameter, double value) const;

 private:
  at::Tensor entry_of(const lanes::LaneParameter& parameter) const;

  uint64_t seed_;
  int64_t lane_;
  std::string name_;
  int64_t entry_;
};

// The seeds of one blueprint in one slot, as one stacked module.
class SeedModule {
 public:
  virtual ~SeedModule() = default;
  // x: [E,B,C,H,W] of the compute type; never written: the blend's way back reads it again. Returns the same
  // sizes, type and layout.
  virtual at::Tensor forward(const at::Tensor& x, lanes::Mode mode) = 0;
  // In a fixed order; names are unique. Pointers stay valid as long as the module.
  virtual std::vector<lanes::NamedParameter> parameters() = 0;
  virtual void initialise(const SeedInit& init) = 0;
};

// All that the rest of the library knows of a kind: whoever adds one says it here.
struct Blueprint {
  static constexpr int32_t kTriedLast = 100;

  std::string name;
  std::function<int64_t(const SeedShape&)> num_parameters;  // per seed
  std::function<std::unique_ptr<SeedModule>(const SeedBuild&)> make;
  std::function<PythonSeed(const SeedShape&)> python =
      {};  // without it networks with such seeds cannot be exported
  // Rules try the lowest first, equal ones by their numbers; 1 to 7 come with the library.
  int32_t preference = kTriedLast;
  // For the plan of memory: values that a training step keeps of each sample, as multiples of the slot's:
  // what comes in, what layers make, what goes out. Without it the heaviest of those that say so is assumed.
  std::function<double(const SeedShape&, at::Device)> held = {};
};

// Blueprints by number, which SlotState::blueprint holds, and by name.
class BlueprintRegistry {
 public:
  // All that blueprints() has now; what is added to one later, the other does not have.
  BlueprintRegistry();

  // Returns its number, the next one. A name that is taken, or a blueprint that is incomplete, is refused.
  int32_t add(Blueprint blueprint);

  int32_t size() const { return static_cast<int32_t>(blueprints_.size()); }
  const Blueprint& at(int32_t index) const;
  int32_t index_of(std::string_view name) const;  // refuses an unknown one, with the list
  std::vector<std::string> names() const;

 private:
  friend BlueprintRegistry& blueprints();
  explicit BlueprintRegistry(std::vector<Blueprint> first);

  std::vector<Blueprint> blueprints_;
};

// Those of the process: noop, norm, attention, depthwise, bottleneck, conv_small, conv_light, conv_heavy,
// which are 0 to 7, and what a program adds before it starts a job, from 8 on; saved policies and checkpoints
// know them by these numbers. Nothing is locked.
BlueprintRegistry& blueprints();

// The largest of 32, 16, 8, 4, 2, 1 that divides the channels with at least 16 per group; else the largest
// that divides them.
int64_t group_norm_groups(int64_t channels);

}  // namespace espalier::grow
