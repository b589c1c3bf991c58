// The records and the class names of CIFAR's binary version. The first byte chooses the release and which of
// the two. Held: labels that were accepted lie in range, every value of an image is where it belongs, nothing
// is written past buffers that are exactly as large as the header of decode_records() says.
#include "espalier/data/sources/cifar/binary.h"

#include <vector>

#include "espalier/data/sources/cifar/assembly.h"
#include "fuzz/target.h"
#include "tests/data/sources/cifar_files.h"

namespace {

using namespace espalier;

void check_records(const data::CifarFormat& format, std::span<const std::byte> bytes) {
  const auto record_bytes = static_cast<size_t>(format.record_bytes());
  const auto label_bytes = static_cast<size_t>(format.label_bytes());
  const size_t count = bytes.size() / record_bytes;
  std::vector<std::byte> images(count * data::kCifarImageBytes);
  std::vector<int64_t> labels(count);
  if (!fuzz::reads([&] {
        data::decode_records(format, {.bytes = bytes, .file = "batch"}, images.data(), labels.data());
      })) {
    return;
  }
  fuzz::require(bytes.size() % record_bytes == 0, "only whole records are read");
  for (size_t i = 0; i < count; ++i) {
    const std::byte* record = bytes.data() + i * record_bytes;
    fuzz::require(labels[i] >= 0 && labels[i] < format.num_classes, "a label lies in range");
    for (size_t k = 0; k < data::kCifarImageBytes; ++k) {
      const size_t from = label_bytes + k % 3 * 1024 + k / 3;
      fuzz::require(images[i * data::kCifarImageBytes + k] == record[from], "a value is where it belongs");
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const data::CifarFormat format = data::testing::tiny_format((data[0] & 1) != 0 ? 100 : 10, 1);
  const auto bytes = fuzz::bytes_of(data + 1, size - 1);
  if ((data[0] & 2) == 0) {
    check_records(format, bytes);
    return 0;
  }
  const std::string place = "archive";
  const Progress progress;
  data::CifarAssembly assembly(format, place, progress);
  fuzz::reads([&] { assembly.add_meta(bytes, "meta"); });
  fuzz::reads([&] { assembly.add_batch(0, bytes, "batch"); });
  return 0;
}
