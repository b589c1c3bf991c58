#include "espalier/train/state_archive.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/lanes/tensor_file.h"

namespace espalier {
namespace {

// The name of an enumerator, back to it.
template <class Enum>
Enum named(const nlohmann::ordered_json& json, int count) {
  const auto& name = json.get_ref<const std::string&>();
  for (int i = 0; i < count; ++i)
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  fail("checkpoint: '{}' is no name of a slot's state", name);
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
  json.at("flags").get_to(state.flags);
  json.at("blueprint").get_to(state.blueprint);
  json.at("amplitude").get_to(state.amplitude);
  json.at("ramp_start").get_to(state.ramp_start);
  json.at("target").get_to(state.target);
  json.at("ramp_steps").get_to(state.ramp_steps);
  json.at("ramp_done").get_to(state.ramp_done);
  json.at("age_steps").get_to(state.age_steps);
  json.at("steps_in_stage").get_to(state.steps_in_stage);
  json.at("num_seeds").get_to(state.num_seeds);
}

}  // namespace espalier

namespace espalier::train {

// A number that JSON has not is written as its bits, in hexadecimal: every NaN comes back as it was.
StateArchive::Json StateArchive::encode(double value) {
  if (std::isfinite(value)) return value;
  return fmt::format("{:016x}", std::bit_cast<uint64_t>(value));
}

void StateArchive::decode(const Json& json, double& value) {
  value = json.is_string() ? std::bit_cast<double>(std::stoull(json.get<std::string>(), nullptr, 16))
                           : json.get<double>();
}

StateArchive::Json StateArchive::encode(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) json.push_back(encode(value));
  return json;
}

void StateArchive::decode(const Json& json, std::vector<double>& values) {
  values.assign(json.size(), 0);
  for (size_t i = 0; i < values.size(); ++i) decode(json.at(i), values[i]);
}

void StateArchive::put_value(const std::string& name, Json value) {
  if (!taken_.insert(prefix_ + name).second)
    fail("checkpoint: '{}{}' is named twice; this is a bug", prefix_, name);
  values_[prefix_ + name] = std::move(value);
}

const StateArchive::Json& StateArchive::take_value(const std::string& name) {
  const auto found = values_.find(prefix_ + name);
  if (found == values_.end())
    fail("checkpoint '{}': has no value '{}{}'", from_->path.string(), prefix_, name);
  taken_.insert(prefix_ + name);
  return *found;
}

void StateArchive::refuse_value(const std::string& name) const {
  fail("checkpoint '{}': value '{}{}' is not of its kind", from_->path.string(), prefix_, name);
}

void StateArchive::put_tensor(const std::string& name, at::Tensor tensor) {
  if (!taken_.insert(prefix_ + name).second)
    fail("checkpoint: '{}{}' is named twice; this is a bug", prefix_, name);
  tensors_.emplace_back(prefix_ + name, tensor.detach());
}

at::Tensor StateArchive::take_tensor(const std::string& name) {
  const auto found = std::ranges::find(from_->header.tensors, prefix_ + name, &TensorEntry::name);
  if (found == from_->header.tensors.end())
    fail("checkpoint '{}': has no tensor '{}{}'", from_->path.string(), prefix_, name);
  taken_.insert(found->name);
  const at::Tensor read = at::empty(found->shape, at::TensorOptions(lanes::torch_type(*found)));
  if (found->length_bytes > 0)
    std::memcpy(read.mutable_data_ptr(), from_->bytes_of(*found).data(),
                static_cast<size_t>(found->length_bytes));
  return read;
}

void StateArchive::tensor(const std::string& name, const at::Tensor& live) {
  if (!is_loading()) return put_tensor(name, live);
  const at::Tensor read = take_tensor(name);
  if (read.sizes() != live.sizes() || read.scalar_type() != live.scalar_type())
    fail("checkpoint '{}': tensor '{}{}': want {} {}, got {} {}", from_->path.string(), prefix_, name,
         c10::str(live.sizes()), c10::toString(live.scalar_type()), c10::str(read.sizes()),
         c10::toString(read.scalar_type()));
  const c10::NoGradGuard no_grad;
  live.detach().copy_(read);
}

void StateArchive::stack(const std::string& name, const std::vector<at::Tensor>& live) {
  if (!is_loading()) return put_tensor(name, at::stack(live));
  const at::Tensor read = take_tensor(name);
  if (read.dim() == 0 || read.size(0) != std::ssize(live))
    fail("checkpoint '{}': tensor '{}{}': want {} of them, got shape {}", from_->path.string(), prefix_, name,
         live.size(), c10::str(read.sizes()));
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < live.size(); ++i) {
    const at::Tensor own = read.select(0, static_cast<int64_t>(i));
    if (own.sizes() != live[i].sizes())
      fail("checkpoint '{}': tensor '{}{}': want {} of {}, got shape {}", from_->path.string(), prefix_, name,
           live.size(), c10::str(live[i].sizes()), c10::str(read.sizes()));
    live[i].detach().copy_(own);
  }
}

void StateArchive::any_tensor(const std::string& name, at::Tensor& live, at::Device device) {
  if (!is_loading()) return put_tensor(name, live);
  live = take_tensor(name).to(device);
}

void StateArchive::check_all_taken() const {
  for (const TensorEntry& entry : from_->header.tensors)
    if (!taken_.contains(entry.name))
      fail("checkpoint '{}': tensor '{}' is none of this job's", from_->path.string(), entry.name);
  for (const auto& item : values_.items())
    if (!taken_.contains(item.key()))
      fail("checkpoint '{}': value '{}' is none of this job's", from_->path.string(), item.key());
}

}  // namespace espalier::train
