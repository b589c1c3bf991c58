#include "bench/load_bench.h"

#include <filesystem>
#include <fstream>
#include <vector>

#include "bench/scratch_folder.h"
#include "espalier/core/error.h"
#include "espalier/core/random/philox.h"
#include "espalier/data/sources/source.h"

namespace espalier::bench {
namespace {

namespace fs = std::filesystem;

// The binary version's six files: 10,000 records of a label and 3,072 planar bytes each.
void write_cifar_binary(const fs::path& folder, int64_t records) {
  constexpr size_t kRecordBytes = 3073;
  const char* names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                         "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
  std::vector<char> record(kRecordBytes);
  uint32_t file_index = 0;
  for (const char* name : names) {
    std::ofstream out(folder / name, std::ios::binary);
    for (int64_t i = 0; i < records; ++i) {
      record[0] = static_cast<char>(i % 10);
      for (size_t at = 1; at < kRecordBytes; at += 16) {
        const Words4 words =
            philox4x32(file_index, static_cast<uint32_t>(i), static_cast<uint32_t>(at), 0, 0);
        std::copy_n(reinterpret_cast<const char*>(words.word), std::min<size_t>(16, kRecordBytes - at),
                    &record[at]);
      }
      out.write(record.data(), static_cast<std::streamsize>(record.size()));
    }
    if (!out) fail("--scratch: cannot write '{}'", (folder / name).string());
    ++file_index;
  }
}

}  // namespace

std::string run_load_bench(const LoadBenchOptions& options, const std::string& commit,
                           const Progress& progress) {
  const ScratchFolder scratch(options.scratch, "load");
  if (progress) progress("writing CIFAR-10's binary version, random", 0, 2);
  write_cifar_binary(scratch.path(), 10000);
  const data::SourceConfig cifar{.data = "cifar10:" + scratch.path().string()};
  const std::string file = (scratch.path() / "cifar10.safetensors").string();
  write_safetensors(load_source(cifar, {}), file, {});
  if (progress) progress("writing CIFAR-10's binary version, random", 2, 2);

  const TimingPlan plan = options.bench.smoke ? TimingPlan{0, 1, 1} : TimingPlan{1, 5, 1};
  Report report("load", c10::kCPU, commit, options.bench);
  report.add({"CIFAR-10, binary version", "60,000 x 3x32x32",
              time_calls(c10::kCPU, plan, [&] { load_source(cifar, {}); }), 0, "bar: 500,000 us"});
  const data::SourceConfig safetensors{.data = "safetensors:" + file};
  report.add({"the same as safetensors", "60,000 x 3x32x32",
              time_calls(c10::kCPU, plan, [&] { load_source(safetensors, {}); }), 0, "bar: 100,000 us"});
  return report.text();
}

}  // namespace espalier::bench
