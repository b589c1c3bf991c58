// Checkpoints on disk, without torch: checkpoints/<name>/ with state.safetensors (the tensors) and
// manifest.json (everything else, and a checksum of every tensor and of itself).
//
// Kept true: a folder under its name is whole: it is written under another name, its files are flushed, then
// itself, then it is renamed, then the folder around it is flushed. So whatever kills a process, a name
// either is not there or is a whole checkpoint. What read_checkpoint() returns has passed every rule of the
// format and every checksum.
#pragma once

#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/files/mapped.h"
#include "espalier/core/files/safetensors.h"

namespace espalier::run {

inline constexpr const char* kManifestFile = "manifest.json";
inline constexpr const char* kStateFile = "state.safetensors";
inline constexpr const char* kCheckpoints = "checkpoints";  // the folder in a run

// The run that a checkpoint lies in; empty where it was taken out of one, or was never finished.
std::filesystem::path run_around(const std::filesystem::path& checkpoint);

struct CheckpointTensor {
  TensorSpec spec;
  std::span<const std::byte> bytes;  // row-major
};

class CheckpointFolder {
 public:
  // folder: runs/<run>/checkpoints; made by the first write.
  explicit CheckpointFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  const std::filesystem::path& path() const { return folder_; }

  // tensors: wider types first, so that all are aligned. Fails, and leaves nothing behind, where the disk
  // does.
  void write(const std::string& name, const std::vector<CheckpointTensor>& tensors,
             nlohmann::ordered_json manifest) const;

  std::vector<std::string> names() const;  // those under their name; in their order: oldest first
  // How good the state in it is, as its manifest says; none where it says nothing, or is damaged.
  std::optional<double> score_of(const std::string& name) const;
  // The name of the one with the best score, the oldest of equal ones; none where none has one.
  std::optional<std::string> best() const;
  // Half of one never has its name.
  void remove(const std::string& name) const;
  // What killed processes left behind.
  void sweep() const;

 private:
  std::filesystem::path folder_;
};

struct Checkpoint {
  std::filesystem::path path;
  nlohmann::ordered_json manifest;
  MappedFile file;
  SafetensorsHeader header;

  std::span<const std::byte> bytes_of(const TensorEntry& entry) const;
};

// Fails with one sentence that names the file and what is wrong with it.
Checkpoint read_checkpoint(const std::filesystem::path& path);

// The manifest alone, from its bytes; where: its name in errors.
nlohmann::ordered_json parse_manifest(std::string_view text, std::string_view where);

}  // namespace espalier::run
