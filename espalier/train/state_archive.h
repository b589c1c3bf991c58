// What a job is, written down or read back by one and the same function: a trainer's visit_state(archive)
// names every tensor and value that a later step depends on, in a fixed order.
//
//   void visit_state(StateArchive& archive) {
//     archive.value("epoch", epoch_);
//     archive.tensor("step", step_);       // stays where it is: captured steps go on
//   }
//
// Kept true: saving reads nothing on the host: tensors are the live ones, for the writer to copy; loading
// refuses, by name, a tensor that is missing or of another shape or type, and what nobody asked for; tensors
// are written into in place.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/checkpoint_folder.h"
#include "espalier/core/seed_stage.h"

namespace espalier {

// A slot's state in JSON, by names: part of the format of checkpoints.
void to_json(nlohmann::ordered_json& json, const SlotState& state);
void from_json(const nlohmann::ordered_json& json, SlotState& state);

}  // namespace espalier

namespace espalier::train {

class StateArchive {
 public:
  // To be filled.
  StateArchive() = default;
  // To be read from; values: the part of the manifest that holds them.
  StateArchive(std::shared_ptr<const Checkpoint> from, const nlohmann::ordered_json& values)
      : from_(std::move(from)), values_(values) {}

  bool is_loading() const { return from_ != nullptr; }

  // Everything in `visit` gets the prefix "name." to its name.
  template <class Visit>
  void part(const std::string& name, const Visit& visit) {
    const std::string before = prefix_;
    prefix_ += name + ".";
    visit();
    prefix_ = before;
  }

  // On any device, of any strides.
  void tensor(const std::string& name, const at::Tensor& live);
  // Tensors of one shape as one of a file, with a first axis more.
  void stack(const std::string& name, const std::vector<at::Tensor>& live);
  // Whatever its shape and type: loaded as a new tensor on the device.
  void any_tensor(const std::string& name, at::Tensor& live, at::Device device);

  // What JSON holds: numbers (NaN and infinities too), text, vectors, optionals of numbers, SlotState.
  template <class Value>
  void value(const std::string& name, Value& live) {
    if (!is_loading()) {
      put_value(name, encode(live));
    } else {
      try {
        decode(take_value(name), live);
      } catch (const nlohmann::json::exception&) {
        refuse_value(name);
      } catch (const std::logic_error&) {  // bits that are none
        refuse_value(name);
      }
    }
  }

  // Saved so far.
  const std::vector<std::pair<std::string, at::Tensor>>& tensors() const { return tensors_; }
  const nlohmann::ordered_json& values() const { return values_; }

  // After loading: refuses what nobody asked for.
  void check_all_taken() const;

 private:
  using Json = nlohmann::ordered_json;

  static Json encode(double value);  // JSON has no NaN
  static void decode(const Json& json, double& value);
  static Json encode(const std::vector<double>& values);
  static void decode(const Json& json, std::vector<double>& values);
  template <class Value>
  static Json encode(const Value& value) {
    return value;
  }
  template <class Value>
  static void decode(const Json& json, Value& value) {
    json.get_to(value);
  }

  void put_value(const std::string& name, Json value);
  const Json& take_value(const std::string& name);
  [[noreturn]] void refuse_value(const std::string& name) const;
  at::Tensor take_tensor(const std::string& name);
  void put_tensor(const std::string& name, at::Tensor tensor);

  std::string prefix_;
  std::shared_ptr<const Checkpoint> from_;  // none: saving
  Json values_ = Json::object();
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
  std::set<std::string> taken_;
};

}  // namespace espalier::train
