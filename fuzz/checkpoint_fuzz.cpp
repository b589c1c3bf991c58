// Checkpoints: the manifest alone, and with its tensors. The input is manifest.json, a zero byte, and
// state.safetensors. Held: what was accepted is an object whose checksums are those of the tensors. The
// mutator changes one of the two files and mends the checksums.
#include <nlohmann/json.hpp>

#include "espalier/core/files/crc32c.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "fuzz/safetensors_mutation.h"
#include "fuzz/target.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace espalier;
using Json = nlohmann::ordered_json;

struct Parts {
  std::string manifest;
  std::string state;
};

Parts split(std::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  return {std::string(input.substr(0, end)), std::string(input.substr(std::min(end + 1, input.size())))};
}

void seal(Parts& parts, bool with_tensors) {
  Json json = Json::parse(parts.manifest, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return;
  if (with_tensors) {
    try {
      Json sums = Json::object();
      const auto bytes = std::as_bytes(std::span(parts.state));
      for (const TensorEntry& tensor : parse_safetensors(bytes, "state").tensors) {
        sums[tensor.name] = crc32c(bytes.subspan(static_cast<size_t>(tensor.offset_bytes),
                                                 static_cast<size_t>(tensor.length_bytes)));
      }
      json["tensor_crc32c"] = std::move(sums);
    } catch (const Error&) {  // stays as it is: that is an input too
    }
  }
  json.erase("crc32c");
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  json["crc32c"] = crc32c(std::as_bytes(std::span(text)));
  parts.manifest = json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (!fuzz::mutates_raw(seed)) {
    Parts parts = split(fuzz::text_of(data, size));
    const unsigned choice = seed / 8;
    if (choice % 2 == 0 || parts.state.size() < kSafetensorsLengthBytes) {
      fuzz::mutate(parts.manifest, max_size / 2);
    } else {
      parts.state = fuzz::mutated_safetensors(parts.state, max_size / 2, choice / 2);
    }
    if (choice % 16 != 3) seal(parts, choice % 16 != 5);
    const size_t stored = fuzz::store(parts.manifest + '\0' + parts.state, data, max_size);
    if (stored != 0) return stored;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Parts parts = split(fuzz::text_of(data, size));
  if (!fuzz::reads(
          [&] { fuzz::require(run::parse_manifest(parts.manifest, "manifest").is_object(), "an object"); }))
    return 0;
  static const support::TemporaryFolder folder;
  folder.write(run::kManifestFile, parts.manifest);
  folder.write(run::kStateFile, parts.state);
  fuzz::reads([&] {
    const run::Checkpoint checkpoint = run::read_checkpoint(folder.path());
    for (const TensorEntry& tensor : checkpoint.header.tensors) {
      fuzz::require(checkpoint.manifest["tensor_crc32c"][tensor.name] == crc32c(checkpoint.bytes_of(tensor)),
                    "a tensor's checksum is the manifest's");
    }
  });
  return 0;
}
