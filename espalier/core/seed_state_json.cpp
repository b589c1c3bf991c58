#include "espalier/core/seed_state_json.h"

#include <stdexcept>

#include "espalier/core/text/json_fields.h"

namespace espalier {
namespace {

// The name of an enumerator, back to it.
template <class Enum>
Enum named(const nlohmann::ordered_json& json, int count) {
  const auto& name = json.get_ref<const std::string&>();
  for (int i = 0; i < count; ++i)
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  throw std::invalid_argument(name);
}

template <class Integer>
void integer_at(const nlohmann::ordered_json& json, const char* key, Integer& value) {
  const auto number = whole_number<Integer>(json.at(key));
  if (!number) throw std::invalid_argument(key);
  value = *number;
}

}  // namespace

void to_json(nlohmann::ordered_json& json, const SlotState& state) {
  json = {{"stage", name_of(state.stage)},  {"operator", name_of(state.blend_operator)},
          {"curve", name_of(state.curve)},  {"flags", state.flags},
          {"blueprint", state.blueprint},   {"amplitude", state.amplitude},
          {"ramp_start", state.ramp_start}, {"target", state.target},
          {"ramp_steps", state.ramp_steps}, {"ramp_done", state.ramp_done},
          {"age_steps", state.age_steps},   {"steps_in_stage", state.steps_in_stage},
          {"num_seeds", state.num_seeds}};
}

void from_json(const nlohmann::ordered_json& json, SlotState& state) {
  state.stage = named<SeedStage>(json.at("stage"), kNumSeedStages);
  state.blend_operator = named<BlendOperator>(json.at("operator"), kNumBlendOperators);
  state.curve = named<BlendCurve>(json.at("curve"), kNumBlendCurves);
  integer_at(json, "flags", state.flags);
  integer_at(json, "blueprint", state.blueprint);
  json.at("amplitude").get_to(state.amplitude);
  json.at("ramp_start").get_to(state.ramp_start);
  json.at("target").get_to(state.target);
  integer_at(json, "ramp_steps", state.ramp_steps);
  integer_at(json, "ramp_done", state.ramp_done);
  integer_at(json, "age_steps", state.age_steps);
  integer_at(json, "steps_in_stage", state.steps_in_stage);
  integer_at(json, "num_seeds", state.num_seeds);
}

}  // namespace espalier
