// What one grown network is, apart from the values in its tensors: the host, what it is shown, the seeds
// where they stand, and where it comes from. The metadata of an exported file is this, as JSON. Free of
// torch, so that the reader of outside bytes can be fuzzed alone; network_file.h has the tensors.
//
// Kept true: what network_description() returns has the sizes, classes, means and deviations that a network
// needs (at least one channel, pixel and class, as many means as channels, deviations above 0), and every
// state in it is one that a lifecycle can produce (fault_in()). Whether host and blueprints exist, and
// tensors fit, is network_file.h's matter.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/files/safetensors.h"
#include "espalier/core/seed_stage.h"

namespace espalier::grow {

struct SeedDescription {
  std::string slot;       // "r0c1"
  std::string blueprint;  // its name: state.blueprint, a number in one program's registry, is 0 here
  SlotState state;        // holds_seed(state.stage)
};

// Where a network comes from, as far as that is known.
struct NetworkOrigin {
  std::string run;   // its directory, or what made it
  std::string data;  // the address of what it was trained on
  int64_t lane = 0;
  int64_t epoch = 0;                          // epochs trained
  std::optional<double> validation_accuracy;  // in [0, 1]
  std::optional<double> test_accuracy;
  std::string version;  // the program's that trained it
  std::string commit;
};

struct NetworkDescription {
  std::string host = "cifar_baseline";  // by its name in hosts()
  std::string field = "image";          // the data's
  int64_t channels = 3;
  int64_t height = 32;
  int64_t width = 32;
  int64_t full_scale = 255;            // the largest value of a pixel, which is 1: 255 or 65535
  std::vector<double> mean;            // [C] of values scaled to [0, 1]
  std::vector<double> deviation;       // [C], above 0
  std::vector<std::string> classes;    // names, by label
  std::vector<SeedDescription> seeds;  // in the order of the host's slots by action index
  NetworkOrigin origin;

  int64_t num_classes() const { return static_cast<int64_t>(classes.size()); }
  // "3 x 32 x 32": channels, height, width.
  std::string image_text() const;
};

// As is_felt() of core says of its state.
bool is_felt(const SeedDescription& seed);

nlohmann::ordered_json to_json(const NetworkDescription& network);
// where: begins the one sentence that says what is wrong with it.
NetworkDescription network_from_json(const nlohmann::ordered_json& json, std::string_view where);

Metadata metadata_of(const NetworkDescription& network);
// Fails, naming the file, for one that is no network of ours or is damaged.
NetworkDescription network_description(const Metadata& metadata, const std::string& file);

}  // namespace espalier::grow
