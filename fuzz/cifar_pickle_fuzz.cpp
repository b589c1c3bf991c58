// The pickles of CIFAR's Python version, as a batch and as a file of class names. Held: the images that a
// batch speaks of are as many bytes as it says, all of them readable; there are as many labels; names are
// short.
#include "espalier/data/sources/cifar/pickle.h"

#include "espalier/data/sources/cifar/format.h"
#include "fuzz/target.h"

namespace {

using namespace espalier;

void check_batch(std::span<const std::byte> bytes, const std::string& labels_key) {
  fuzz::reads([&] {
    const data::PickledBatch batch = data::read_pickled_batch(bytes, "batch", labels_key);
    fuzz::require(batch.num_images >= 0 &&
                      batch.images.size() == static_cast<size_t>(batch.num_images * data::kCifarImageBytes),
                  "a batch has the bytes of its images");
    fuzz::require(batch.labels.size() == static_cast<size_t>(batch.num_images),
                  "a batch has a label an image");
    unsigned sum = 0;
    for (const std::byte value : batch.images) sum += std::to_integer<unsigned>(value);
    fuzz::require(sum <= 255 * batch.images.size(), "every value can be read");
  });
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::bytes_of(data, size);
  check_batch(bytes, "labels");
  check_batch(bytes, "fine_labels");
  fuzz::reads([&] {
    constexpr int64_t kNames = 3;
    const auto names = data::read_pickled_names(bytes, "meta", "label_names", kNames);
    fuzz::require(names.size() == kNames, "as many names as there are classes");
    for (const std::string& name : names) fuzz::require(name.size() <= 256, "a name is short");
  });
  return 0;
}
