#include "espalier/data/sources/cifar/pickle.h"

#include <utility>

#include "espalier/core/error.h"
#include "espalier/data/sources/cifar/format.h"
#include "espalier/data/sources/cifar/pickle_machine.h"

namespace espalier::data {

namespace {

// The value of `key` in the pickle's dict; fails where it is missing, twice there or of another kind.
const PickleValue& entry(const Pickle& pickle, const std::string& file, std::string_view key, PickleKind kind,
                         std::string_view kind_name) {
  const PickleValue& root = pickle.values[pickle.root];
  if (root.kind != PickleKind::kDict)
    fail("{}: the pickle holds no dict, expected one with '{}'; {}", file, key, kRemedy);
  const PickleValue* found = nullptr;
  for (size_t i = 0; i + 1 < root.items.size(); i += 2) {
    if (!pickle.values[root.items[i]].is_text(key)) continue;
    if (found != nullptr)
      fail("{}: the pickle's dict has '{}' twice, expected it once; {}", file, key, kRemedy);
    found = &pickle.values[root.items[i + 1]];
  }
  if (found == nullptr) {
    fail(
        "{}: the pickle's dict has no '{}'; the file is of another dataset, or a batch in place of a meta "
        "file",
        file, key);
  }
  if (found->kind != kind) fail("{}: '{}' in the pickle is not {}; {}", file, key, kind_name, kRemedy);
  return *found;
}

}  // namespace

bool is_pickle(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x80} && bytes[1] >= std::byte{2} &&
         bytes[1] <= std::byte{5};
}

PickledBatch read_pickled_batch(std::span<const std::byte> bytes, const std::string& file,
                                const std::string& labels_key) {
  Pickle pickle = read_pickle(bytes, file);
  const PickleValue& data = entry(pickle, file, "data", PickleKind::kArray, "a numpy array of uint8");
  const PickleValue& labels = entry(pickle, file, labels_key, PickleKind::kList, "a list");
  if (data.items.empty()) fail("{}: the array 'data' in the pickle has no content; {}", file, kRemedy);

  PickledBatch batch;
  const PickleValue& shape = pickle.values[data.items[0]];
  const auto side = [&](size_t i) {
    const PickleValue& size = pickle.values[shape.items[i]];
    return size.kind == PickleKind::kInt ? size.integer : -1;
  };
  if (shape.items.size() != 2 || side(0) < 0 || side(1) != kCifarImageBytes) {
    fail("{}: the array 'data' in the pickle has {} axes{}, expected [images, {}]; {}", file,
         shape.items.size(), shape.items.size() == 2 ? fmt::format(" of {} and {}", side(0), side(1)) : "",
         kCifarImageBytes, kRemedy);
  }
  batch.num_images = side(0);
  batch.is_column_major = data.integer != 0;
  batch.images = pickle.values[data.items[1]].text;
  // Divided, not multiplied: num_images comes from the file and may be anything.
  const auto image_bytes = static_cast<size_t>(kCifarImageBytes);
  if (batch.images.size() % image_bytes != 0 ||
      batch.images.size() / image_bytes != static_cast<size_t>(batch.num_images)) {
    fail("{}: the array 'data' in the pickle has {} bytes, expected {} images of {}; {}", file,
         batch.images.size(), batch.num_images, kCifarImageBytes, kRemedy);
  }
  if (labels.items.size() != static_cast<size_t>(batch.num_images)) {
    fail("{}: {} entries in '{}' for {} images, expected as many; {}", file, labels.items.size(), labels_key,
         batch.num_images, kRemedy);
  }
  batch.labels.reserve(labels.items.size());
  for (const uint32_t index : labels.items) {
    const PickleValue& label = pickle.values[index];
    if (label.kind != PickleKind::kInt) {
      fail("{}: entry {} of '{}' is not an integer; {}", file, batch.labels.size(), labels_key, kRemedy);
    }
    batch.labels.push_back(label.integer);
  }
  for (std::vector<std::byte>& decoded : pickle.decoded) {
    if (decoded.data() == batch.images.data()) batch.decoded = std::move(decoded);  // keeps its address
  }
  return batch;
}

std::vector<std::string> read_pickled_names(std::span<const std::byte> bytes, const std::string& file,
                                            const std::string& names_key, int64_t num_names) {
  const Pickle pickle = read_pickle(bytes, file);
  const PickleValue& list = entry(pickle, file, names_key, PickleKind::kList, "a list");
  // Checked before anything is copied: a small pickle can list one long text a million times.
  constexpr size_t kMaxNameBytes = 256;
  if (list.items.size() != static_cast<size_t>(num_names)) {
    fail("{}: {} class names, expected {}; {}", file, list.items.size(), num_names, kRemedy);
  }
  std::vector<std::string> names;
  names.reserve(list.items.size());
  for (const uint32_t index : list.items) {
    const PickleValue& name = pickle.values[index];
    if (name.kind != PickleKind::kText || name.text.size() > kMaxNameBytes) {
      fail("{}: entry {} of '{}' is no text of at most {} bytes; {}", file, names.size(), names_key,
           kMaxNameBytes, kRemedy);
    }
    names.emplace_back(as_string(name.text));
  }
  return names;
}

}  // namespace espalier::data
