#include "espalier/grow/seeds/blueprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"
#include "espalier/grow/seeds/modules.h"
#include "espalier/lanes/init.h"

namespace espalier::grow {

SeedInit::SeedInit(uint64_t seed, int64_t lane, std::string name, int64_t entry)
    : seed_(seed), lane_(lane), name_(std::move(name)), entry_(entry) {}

at::Tensor SeedInit::entry_of(const lanes::LaneParameter& parameter) const {
  return parameter.storage().narrow(0, entry_, 1);
}

void SeedInit::kaiming_uniform(const lanes::NamedParameter& weight) const {
  lanes::init_kaiming_uniform_(entry_of(*weight.parameter), {seed_, name_ + "." + weight.name, lane_});
}

void SeedInit::uniform_like(const lanes::NamedParameter& bias, const lanes::LaneParameter& weight) const {
  lanes::init_uniform_(entry_of(*bias.parameter), lanes::kaiming_bound(weight.storage()),
                       {seed_, name_ + "." + bias.name, lane_});
}

void SeedInit::fill(const lanes::NamedParameter& parameter, double value) const {
  entry_of(*parameter.parameter).fill_(value);
}

BlueprintRegistry::BlueprintRegistry() : BlueprintRegistry(blueprints()) {}

BlueprintRegistry::BlueprintRegistry(std::vector<Blueprint> first) {
  for (Blueprint& blueprint : first) add(std::move(blueprint));
}

BlueprintRegistry& blueprints() {
  static BlueprintRegistry blueprints(built_in_blueprints());
  return blueprints;
}

int32_t BlueprintRegistry::add(Blueprint blueprint) {
  if (blueprint.name.empty() || !blueprint.num_parameters || !blueprint.make)
    fail_usage("blueprint '{}': want a name, num_parameters and make, got an incomplete one", blueprint.name);
  for (const Blueprint& each : blueprints_)
    if (each.name == blueprint.name)
      fail_usage("blueprint '{}': the name is taken; choose one besides {}", blueprint.name,
                 fmt::join(names(), ", "));
  blueprints_.push_back(std::move(blueprint));
  return size() - 1;
}

const Blueprint& BlueprintRegistry::at(int32_t index) const {
  if (index < 0 || index >= size()) fail_usage("blueprint: want 0 to {}, got {}", size() - 1, index);
  return blueprints_[static_cast<size_t>(index)];
}

int32_t BlueprintRegistry::index_of(std::string_view name) const {
  for (int32_t i = 0; i < size(); ++i)
    if (blueprints_[static_cast<size_t>(i)].name == name) return i;
  fail_usage("blueprint: want one of {}, got '{}'", fmt::join(names(), ", "), on_one_line(name));
}

std::vector<std::string> BlueprintRegistry::names() const {
  std::vector<std::string> names;
  for (const Blueprint& blueprint : blueprints_) names.push_back(blueprint.name);
  return names;
}

int64_t group_norm_groups(int64_t channels) {
  static constexpr int64_t kChoices[] = {32, 16, 8, 4, 2, 1};
  for (const int64_t groups : kChoices)
    if (channels % groups == 0 && channels / groups >= 16) return groups;
  for (const int64_t groups : kChoices)
    if (channels % groups == 0) return groups;
  return 1;
}

}  // namespace espalier::grow
