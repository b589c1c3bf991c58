// A job's state, written down or read back by one and the same function: a trainer's visit_state(archive)
// names every tensor and value that a later step depends on, in a fixed order.
//
//   void visit_state(StateArchive& archive) {
//     archive.value("epoch", epoch_);
//     archive.tensor("step", step_);       // stays where it is: captured steps go on
//   }
//
// Kept true: saving reads nothing on the host: tensors are the live ones, for the writer to copy; loading
// refuses, by name, a tensor that is missing or of another shape or type, and what nobody asked for; tensors
// are written into in place. What is saved does not depend on how the lanes of a job are dealt out over
// shards and processes: each names its lanes' part of a whole, and takes its part of one.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/seed_state_json.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/ranks/world.h"
#include "espalier/run/files/checkpoint_folder.h"

namespace espalier::run {

// The lanes of a job that one shard holds, in its order.
struct LaneShare {
  std::vector<int64_t> envs;  // their numbers in the job
  int64_t num_lanes = 0;      // in the whole job
};

class StateArchive {
 public:
  // To be filled.
  StateArchive() = default;
  // To be read from; values: the part of the manifest that holds them.
  StateArchive(std::shared_ptr<const Checkpoint> from, const nlohmann::ordered_json& values)
      : from_(std::move(from)), values_(values) {}

  bool is_loading() const { return from_ != nullptr; }
  // Loading: whether there is a value of this name.
  bool has_value(const std::string& name) const { return values_.contains(prefix_ + name); }

  // Everything in `visit` gets the prefix "name." to its name.
  template <class Visit>
  void part(const std::string& name, const Visit& visit) {
    const std::string before = prefix_;
    prefix_ += name + ".";
    visit();
    prefix_ = before;
  }

  // Everything in `visit` is of one shard: what is not named as a lane's own is the same in all of them, and
  // is saved once.
  template <class Visit>
  void with_lanes(const LaneShare& share, const Visit& visit) {
    // A shard that has all lanes is the whole, and every process that has one has the same.
    const bool is_whole = std::ssize(share.envs) == share.num_lanes && std::ranges::is_sorted(share.envs);
    share_ = is_whole ? nullptr : &share;
    named_in_share_.clear();
    visit();
    share_ = nullptr;
  }
  // The name of the part that is one lane's own: "lane7", by its number in the job. lane: in the shard.
  std::string lane_name(int64_t lane) const;
  // Loading: lanes that another process has are no leftovers. envs: their numbers in the job.
  void pass_over_lanes(const std::vector<int64_t>& envs);

  // A tensor with an axis of lanes: the shard's here, all lanes of the job in the file.
  void lane_tensor(const std::string& name, const at::Tensor& live, int64_t axis = 0);
  // A list with as many values for each lane.
  template <class Value>
  void lane_list(const std::string& name, std::vector<Value>& live) {
    if (share_ == nullptr) return list(name, live);
    const auto per_lane = static_cast<int64_t>(live.size()) / std::max<int64_t>(std::ssize(share_->envs), 1);
    Json json = encode(live);
    if (!is_loading()) return put_lane_list(name, std::move(json), per_lane);
    try {
      decode(take_lane_list(name, per_lane), live);
    } catch (const nlohmann::json::exception&) {
      refuse_value(name);
    } catch (const std::logic_error&) {
      refuse_value(name);
    }
  }

  // On any device, of any strides.
  void tensor(const std::string& name, const at::Tensor& live);
  // Tensors of one shape, one per lane, as one of a file, with a first axis more.
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

  // A list that is as long as it is now: one of another length is refused.
  template <class Value>
  void list(const std::string& name, std::vector<Value>& live) {
    const size_t length = live.size();
    std::vector<Value> read = live;
    value(name, read);
    if (is_loading() && read.size() != length) refuse_length(name, length, read.size());
    live = std::move(read);
  }

  // Saving, when all is named: rank 0 gets what the others named too.
  void gather(ranks::World& world);

  // Saved so far, in the order of names; lanes that were named in parts as a whole.
  std::vector<std::pair<std::string, at::Tensor>> tensors() const;
  nlohmann::ordered_json values() const;

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
    if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>) {
      const auto number = whole_number<Value>(json);
      if (!number) throw std::invalid_argument("no whole number of its size");
      value = *number;
    } else {
      json.get_to(value);
    }
  }

  // A part of something that has an axis of lanes.
  struct TensorPart {
    std::vector<int64_t> envs;  // empty: it is whole
    int64_t num_lanes = 0;
    int64_t axis = 0;
    at::Tensor tensor;
  };
  struct ListPart {
    std::vector<int64_t> envs;
    int64_t num_lanes = 0;
    Json values;
  };

  // Whether it is to be saved here: what another shard has named already is not.
  bool claim(const std::string& name);
  void put_lane_list(const std::string& name, Json values, int64_t per_lane);
  Json take_lane_list(const std::string& name, int64_t per_lane);
  static at::Tensor whole(const std::vector<TensorPart>& parts);
  static Json whole(const std::vector<ListPart>& parts);
  void refuse_lanes(const std::string& name, const at::Tensor& read, const at::Tensor& live) const;

  void put_value(const std::string& name, Json value);
  const Json& take_value(const std::string& name);
  [[noreturn]] void refuse_value(const std::string& name) const;
  [[noreturn]] void refuse_length(const std::string& name, size_t want, size_t got) const;
  at::Tensor take_tensor(const std::string& name);
  void put_tensor(const std::string& name, at::Tensor tensor);

  std::string prefix_;
  std::shared_ptr<const Checkpoint> from_;  // none: saving
  const LaneShare* share_ = nullptr;        // none: all lanes are here
  std::set<std::string> named_in_share_;    // by the shard that is being visited
  std::set<std::string> alike_;             // in all processes: named outside of any shard
  Json values_ = Json::object();
  std::map<std::string, std::vector<TensorPart>> tensors_;
  std::map<std::string, std::vector<ListPart>> lists_;
  std::set<std::string> taken_;
};

}  // namespace espalier::run
