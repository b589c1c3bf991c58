// `espalier export`: grown networks as files of their own, for Python and for `espalier predict`.
//
// Kept true: a network is a pair of files, NAME.safetensors and NAME.py; nothing is written before all that
// is asked for was read and described; nothing that exists is overwritten unless that is asked for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "espalier/grow/network_file.h"
#include "espalier/jobs/saved/networks.h"

namespace espalier::jobs {

struct ExportConfig {
  std::string from;  // as saved_networks() takes it
  std::string out;   // NAME, or NAME.safetensors; of all lanes: a folder
  LaneChoice lane;
  CheckpointChoice checkpoint = CheckpointChoice::kNewest;
  bool overwrite = false;
};

struct ExportedNetwork {
  std::filesystem::path tensors;
  std::filesystem::path python;
  grow::NetworkDescription description;
};

std::vector<ExportedNetwork> export_networks(const ExportConfig& config);

// One pair. path: with or without .safetensors; its name must be one that Python can import. blueprints:
// those that the network may be of.
ExportedNetwork export_network(const grow::GrownNetwork& network, const std::filesystem::path& path,
                               const grow::BlueprintRegistry& blueprints = {});

}  // namespace espalier::jobs
