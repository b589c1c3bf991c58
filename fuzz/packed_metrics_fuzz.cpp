// metrics.jsonl.gz of a run. Held: reading ends, whatever the file holds; what can be unpacked is what was
// read, and packed again it is read as the same.
#include <filesystem>

#include "espalier/run/files/packed_metrics.h"
#include "fuzz/target.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace espalier;

std::string read_packed(const std::filesystem::path& run) {
  std::string text;
  run::read_packed(run, [&](std::string_view piece) { text += piece; });
  return text;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const support::TemporaryFolder folder;
  const std::filesystem::path run = folder.path();
  std::filesystem::remove(run / "metrics.jsonl");
  folder.write(run::kPackedMetrics, fuzz::text_of(data, size));
  const std::string text = read_packed(run);
  const bool is_whole = fuzz::reads([&] { run::unpack_metrics(run); });
  fuzz::require(run::is_packed(run) != is_whole, "one of the two files is there");
  if (!is_whole) return 0;
  run::pack_metrics(run);
  fuzz::require(read_packed(run) == text, "packed again it is read as the same");
  return 0;
}
