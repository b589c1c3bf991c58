#include "espalier/data/sources/cifar/release.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/data/sources/cifar/assembly.h"
#include "espalier/data/sources/input_file.h"
#include "espalier/data/sources/source.h"

namespace espalier::data {

namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_gzip(const InputFile& file) {
  std::array<std::byte, 2> magic = {};
  return file.read_some(0, magic) == 2 && magic[0] == std::byte{0x1f} && magic[1] == std::byte{0x8b};
}

// One version of the release, unpacked: its files in one directory, with or without ".bin".
struct Candidate {
  fs::path directory;
  std::string suffix;
  std::vector<std::string> missing;
};

std::vector<Candidate> candidates_in(const CifarFormat& format, const fs::path& place) {
  std::vector<Candidate> all;
  for (const fs::path& directory : {place, place / format.folders[0], place / format.folders[1]}) {
    for (const char* suffix : {".bin", ""}) {
      Candidate candidate{.directory = directory, .suffix = suffix, .missing = {}};
      for (const CifarBatch& batch : format.batches) {
        if (!is_file(directory / (batch.name + suffix))) candidate.missing.push_back(batch.name + suffix);
      }
      all.push_back(std::move(candidate));
    }
  }
  return all;
}

HostDataset load_files(const CifarFormat& format, const Candidate& candidate, const Progress& progress) {
  const std::string place = candidate.directory.string();
  CifarAssembly assembly(format, place, progress);
  for (size_t i = 0; i < format.batches.size(); ++i) {
    const InputFile file((candidate.directory / (format.batches[i].name + candidate.suffix)).string());
    assembly.add_batch(i, file);
  }
  for (const std::string& name : format.meta) {
    const fs::path path = candidate.directory / name;
    if (!is_file(path)) continue;
    const InputFile file(path.string());
    assembly.check_meta_size(file.size_bytes(), file.path());
    std::vector<std::byte> bytes(static_cast<size_t>(file.size_bytes()));
    file.read_at(0, bytes);
    assembly.add_meta(bytes, file.path());
    break;
  }
  return assembly.finish();
}

HostDataset load_archive(const CifarFormat& format, const std::string& path, const Progress& progress) {
  const InputFile file(path);
  if (!is_gzip(file)) {
    fail("{}: not a gzip file, expected {} or {} as downloaded, or the directory it unpacks to", path,
         format.archives[0], format.archives[1]);
  }
  int64_t offset = 0;
  const ReadSome source = [&](std::span<std::byte> out) {
    const size_t got = file.read_some(offset, out);
    offset += static_cast<int64_t>(got);
    return got;
  };
  return load_cifar_archive(format, source, path, progress);
}

// In steps: a header may claim a whole batch where the archive ends after a few bytes.
void read_member(TarGzReader& reader, int64_t size_bytes, std::vector<std::byte>& bytes) {
  constexpr size_t kStepBytes = size_t{16} << 20;
  const auto size = static_cast<size_t>(size_bytes);
  bytes.clear();
  while (bytes.size() < size) {
    const size_t done = bytes.size();
    bytes.resize(std::min(size, done + kStepBytes));
    reader.read(std::span(bytes).subspan(done));
  }
}

// Why nothing was found, with the command that would have been right where that can be seen.
[[noreturn]] void fail_nothing_found(const CifarFormat& format, const fs::path& place) {
  const CifarFormat other = cifar_format(format.num_classes == 10 ? 100 : 10);
  for (const Candidate& candidate : candidates_in(other, place)) {
    if (candidate.missing.empty()) {
      fail("{}: this is {}, expected {}; write {}:{}", place.string(), other.kind, format.kind, other.kind,
           place.string());
    }
  }
  if (is_folder(place / "train")) {
    fail("{}: no {} files, but a directory 'train'; for an image folder write folder:{}", place.string(),
         format.kind, place.string());
  }
  fail("{}: no {} files, expected {}.bin, {}, {} or {} in it; check the path or download an archive into it",
       place.string(), format.kind, format.batches[0].name, format.batches[0].name, format.archives[0],
       format.archives[1]);
}

}  // namespace

HostDataset load_cifar_archive(const CifarFormat& format, ReadSome source, const std::string& file,
                               const Progress& progress) {
  const CifarFormat other = cifar_format(format.num_classes == 10 ? 100 : 10);
  CifarAssembly assembly(format, file, progress);
  TarGzReader reader(std::move(source), file);
  std::vector<std::byte> bytes;
  bool has_any = false;
  bool has_other = false;
  while (const auto member = reader.next()) {
    const std::string name = member->name.substr(member->name.find_last_of('/') + 1);
    const std::string shown = file + "/" + name;
    const std::optional<size_t> batch = assembly.find_batch(name);
    const bool is_meta = assembly.is_meta(name);
    has_other = has_other || name == other.batches[0].name || name == other.batches[0].name + ".bin";
    if (!batch && !is_meta) continue;
    if (batch) {
      assembly.check_batch_size(*batch, member->size_bytes, shown);
    } else {
      assembly.check_meta_size(member->size_bytes, shown);
    }
    read_member(reader, member->size_bytes, bytes);
    if (batch) {
      has_any = true;
      assembly.add_batch(*batch, bytes, shown);
    } else {
      assembly.add_meta(bytes, shown);
    }
  }
  if (!has_any && has_other) {
    fail("{}: this is {}, expected {}; write {}:{}", file, other.kind, format.kind, other.kind, file);
  }
  return assembly.finish();
}

HostDataset load_cifar_release(const CifarFormat& format, const std::string& place,
                               const Progress& progress) {
  if (!is_folder(place)) {
    std::error_code error;
    if (!fs::exists(place, error)) {
      fail("{}: no such file or directory, expected a directory with {} or its archive; check the path",
           place, format.kind);
    }
    return load_archive(format, place, progress);
  }
  const std::vector<Candidate> candidates = candidates_in(format, place);
  const Candidate* nearest = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.missing.empty()) return load_files(format, candidate, progress);
    if (nearest == nullptr || candidate.missing.size() < nearest->missing.size()) nearest = &candidate;
  }
  for (const std::string& name : format.archives) {
    const fs::path path = fs::path(place) / name;
    if (is_file(path)) return load_archive(format, path.string(), progress);
  }
  // A lone 'test' or 'train' is no sign of CIFAR-100, a lone 'data_batch_3.bin' is one of CIFAR-10.
  if (nearest->missing.size() == format.batches.size()) fail_nothing_found(format, place);
  fail("{}: {} is missing, expected all {} batches of {}; download the archive again",
       nearest->directory.string(), fmt::join(nearest->missing, ", "), format.batches.size(), format.kind);
}

HostDataset load_cifar(int num_classes, const std::string& place, const Progress& progress) {
  return load_cifar_release(cifar_format(num_classes), place, progress);
}

}  // namespace espalier::data
