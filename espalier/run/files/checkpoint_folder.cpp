#include "espalier/run/files/checkpoint_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"
#include "espalier/core/files/crc32c.h"
#include "espalier/core/files/safetensors_writer.h"
#include "espalier/core/text/utf8.h"

namespace espalier::run {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kTemporary = ".unfinished-";
constexpr const char* kChecksums = "tensor_crc32c";
constexpr const char* kOwnChecksum = "crc32c";
// Ours are a handful deep; what is deeper would only exhaust the stack of whoever walks through it.
constexpr int kDeepestJson = 32;

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

void flush_folder(const fs::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) fail("'{}': cannot be opened: {}", folder.string(), std::strerror(errno));
  const int code = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  if (code != 0) fail("'{}': cannot be flushed to the disk: {}", folder.string(), std::strerror(code));
}

// Removed at the end unless it was renamed.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {
    std::error_code code;
    fs::remove_all(path_, code);  // left by a killed process with this one's number
    fs::create_directories(path_, code);
    if (code) fail("'{}': cannot be made: {}", path_.string(), code.message());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!is_renamed_) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const fs::path& path() const { return path_; }
  void rename_to(const fs::path& name) {
    std::error_code code;
    fs::rename(path_, name, code);
    if (code) fail("'{}': cannot be given its name: {}", name.string(), code.message());
    is_renamed_ = true;
  }

 private:
  fs::path path_;
  bool is_renamed_ = false;
};

}  // namespace

fs::path run_around(const fs::path& checkpoint) {
  const fs::path folder = checkpoint.parent_path();
  const bool is_finished = !checkpoint.filename().string().starts_with('.');
  return is_finished && folder.filename() == kCheckpoints ? folder.parent_path() : fs::path();
}

void CheckpointFolder::write(const std::string& name, const std::vector<CheckpointTensor>& tensors,
                             Json manifest) const {
  TemporaryFolder temporary(folder_ / fmt::format("{}{}-{}", kTemporary, name, getpid()));
  std::vector<TensorSpec> specs;
  Json checksums = Json::object();
  for (const CheckpointTensor& tensor : tensors) {
    specs.push_back(tensor.spec);
    checksums[tensor.spec.name] = crc32c(tensor.bytes);
  }
  SafetensorsWriter writer((temporary.path() / kStateFile).string(), specs, {});
  for (const CheckpointTensor& tensor : tensors) writer.write(tensor.bytes);
  writer.commit();

  manifest[kChecksums] = std::move(checksums);
  manifest[kOwnChecksum] = crc32c(bytes_of_text(manifest.dump()));
  AtomicFile file((temporary.path() / kManifestFile).string());
  file.write(manifest.dump(1) + "\n");
  file.commit();

  flush_folder(temporary.path());
  const fs::path named = folder_ / name;
  // One that has the name already changes places with it: there is no moment without a whole one.
  if (renameat2(AT_FDCWD, temporary.path().c_str(), AT_FDCWD, named.c_str(), RENAME_EXCHANGE) != 0) {
    if (fs::exists(named)) remove(name);  // on a file system that cannot exchange
    temporary.rename_to(named);
  }
  flush_folder(folder_);
}

std::vector<std::string> CheckpointFolder::names() const {
  std::vector<std::string> names;
  std::error_code code;
  for (fs::directory_iterator entry(folder_, code), end; !code && entry != end; entry.increment(code)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (!name.starts_with('.') && entry->is_directory(ignored)) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

std::optional<double> CheckpointFolder::score_of(const std::string& name) const {
  const std::string path = (folder_ / name / kManifestFile).string();
  try {
    const MappedFile text = map_file(path);
    const Json manifest = parse_manifest(
        std::string_view(reinterpret_cast<const char*>(text.bytes().data()), text.size_bytes), path);
    const auto score = manifest.find("score");
    if (score != manifest.end() && score->is_number()) return score->get<double>();
  } catch (const Error&) {
  }
  return std::nullopt;
}

std::optional<std::string> CheckpointFolder::best() const {
  std::optional<std::string> best;
  std::optional<double> best_score;
  for (const std::string& name : names())
    if (const auto score = score_of(name); score && (!best_score || *score > *best_score)) {
      best = name;
      best_score = score;
    }
  return best;
}

void CheckpointFolder::remove(const std::string& name) const {
  std::error_code code;
  const fs::path doomed = folder_ / fmt::format("{}{}-{}-removed", kTemporary, name, getpid());
  fs::remove_all(doomed, code);
  fs::rename(folder_ / name, doomed, code);
  if (code) fail("'{}': cannot be removed: {}", (folder_ / name).string(), code.message());
  fs::remove_all(doomed, code);
}

void CheckpointFolder::sweep() const {
  std::error_code code;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(folder_, code), end; !code && entry != end; entry.increment(code))
    if (entry->path().filename().string().starts_with(kTemporary)) left.push_back(entry->path());
  for (const fs::path& path : left) fs::remove_all(path, code);
}

Json parse_manifest(std::string_view text, std::string_view where) {
  Json manifest;
  try {
    manifest = Json::parse(text, [&](int depth, Json::parse_event_t, Json&) {
      if (depth > kDeepestJson) fail("'{}': is nested deeper than any manifest: it is damaged", where);
      return true;
    });
  } catch (const Json::exception&) {  // a number beyond double's range is no parse_error
    fail("'{}': is not JSON: it is damaged", where);
  }
  if (!manifest.is_object() || !manifest.contains(kOwnChecksum) || !manifest.contains(kChecksums) ||
      !manifest[kChecksums].is_object())
    fail("'{}': is not the manifest of a checkpoint", where);
  const Json claimed = manifest[kOwnChecksum];
  manifest.erase(kOwnChecksum);
  if (claimed != Json(crc32c(bytes_of_text(manifest.dump(-1, ' ', false, Json::error_handler_t::replace)))))
    fail("'{}': its checksum is not that of its content: it is damaged", where);
  return manifest;
}

std::span<const std::byte> Checkpoint::bytes_of(const TensorEntry& entry) const {
  return file.bytes().subspan(static_cast<size_t>(entry.offset_bytes),
                              static_cast<size_t>(entry.length_bytes));
}

Checkpoint read_checkpoint(const fs::path& path) {
  const std::string manifest_path = (path / kManifestFile).string(),
                    state_path = (path / kStateFile).string();
  Checkpoint read{.path = path};
  const MappedFile text = map_file(manifest_path);
  read.manifest = parse_manifest(
      std::string_view(reinterpret_cast<const char*>(text.bytes().data()), text.size_bytes), manifest_path);
  read.file = map_file(state_path);
  read.header = parse_safetensors(read.file.bytes(), state_path);
  const Json& checksums = read.manifest[kChecksums];
  if (checksums.size() != read.header.tensors.size())
    fail("'{}': has {} tensors, its manifest names {}: it is damaged", state_path, read.header.tensors.size(),
         checksums.size());
  for (const TensorEntry& entry : read.header.tensors) {
    const auto found = checksums.find(entry.name);
    if (found == checksums.end() || *found != Json(crc32c(read.bytes_of(entry))))
      fail("'{}': tensor {}: its checksum is not the manifest's: it is damaged", state_path,
           in_quotes(entry.name));
  }
  return read;
}

}  // namespace espalier::run
