#include "espalier/data/sources/cifar/assembly.h"

#include <algorithm>
#include <array>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/machine/parallel.h"
#include "espalier/data/sources/cifar/binary.h"
#include "espalier/data/sources/cifar/pickle.h"
#include "espalier/data/sources/cifar/pickle_machine.h"

namespace espalier::data {

namespace {

// 32 images: about 96 KiB, which stay in the core's own cache between reading and interleaving.
constexpr int64_t kImagesAtOnce = 32;
constexpr int64_t kMaxMetaBytes = 64 * 1024;

// Bytes of a pickled batch: images as text take at most twice their size, and each image has labels and a
// name.
int64_t max_pickle_bytes(const CifarBatch& batch) {
  return batch.num_images * (2 * kCifarImageBytes + 512) + 4096;
}

// One name per line; empty lines (the official file ends with one) do not count.
std::vector<std::string> read_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

CifarAssembly::CifarAssembly(const CifarFormat& format, const std::string& place, const Progress& progress)
    : format_(format), place_(place), progress_(progress), has_batch_(format.batches.size()) {
  for (const bool is_train : {true, false}) {
    Split& split = is_train ? train_ : test_;
    const int64_t num_images = format.num_images(is_train);
    split.images = allocate_host(num_images * kCifarImageBytes);
    split.labels.resize(static_cast<size_t>(num_images));
  }
}

std::optional<size_t> CifarAssembly::find_batch(std::string_view name) const {
  if (name.ends_with(".bin")) name.remove_suffix(4);
  for (size_t i = 0; i < format_.batches.size(); ++i) {
    if (format_.batches[i].name == name) return i;
  }
  return std::nullopt;
}

bool CifarAssembly::is_meta(std::string_view name) const {
  return name == format_.meta[0] || name == format_.meta[1];
}

void CifarAssembly::check_batch_size(size_t batch, int64_t size_bytes, const std::string& file) const {
  if (size_bytes > max_pickle_bytes(format_.batches[batch])) check_record_size(batch, size_bytes, file);
}

void CifarAssembly::check_meta_size(int64_t size_bytes, const std::string& file) const {
  if (size_bytes > kMaxMetaBytes) {
    fail("{}: {} bytes, expected class names in at most {} bytes; download the archive again", file,
         size_bytes, kMaxMetaBytes);
  }
}

void CifarAssembly::check_record_size(size_t batch, int64_t size_bytes, const std::string& file) const {
  const int64_t num_images = format_.batches[batch].num_images;
  const int64_t expected = num_images * format_.record_bytes();
  if (size_bytes != expected) {
    fail("{}: {} bytes, expected {} ({} images of {} bytes); download the archive again", file, size_bytes,
         expected, num_images, format_.record_bytes());
  }
}

void CifarAssembly::begin(size_t batch, const std::string& file) {
  if (has_batch_[batch]) {
    fail("{}: a second '{}' in {}, expected one; keep one copy", file, format_.batches[batch].name, place_);
  }
  has_batch_[batch] = true;
}

void CifarAssembly::end(size_t batch) {
  num_images_done_ += format_.batches[batch].num_images;
  if (progress_)
    progress_("reading images", num_images_done_, format_.num_images(true) + format_.num_images(false));
}

void CifarAssembly::add_batch(size_t batch, const InputFile& file) {
  const CifarBatch& into = format_.batches[batch];
  std::array<std::byte, 2> head = {};
  const size_t head_size = file.read_some(0, head);
  if (is_pickle(std::span(head).first(head_size))) {
    check_batch_size(batch, file.size_bytes(), file.path());
    std::vector<std::byte> bytes(static_cast<size_t>(file.size_bytes()));
    file.read_at(0, bytes);
    add_batch(batch, bytes, file.path());
    return;
  }
  check_record_size(batch, file.size_bytes(), file.path());
  begin(batch, file.path());
  Split& split = split_of(into);
  parallel_ranges(into.num_images, kImagesAtOnce, [&](int64_t first, int64_t last) {
    const auto size = static_cast<size_t>((last - first) * format_.record_bytes());
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(size);
    const std::span<std::byte> records(buffer.get(), size);
    file.read_at(first * format_.record_bytes(), records);
    const int64_t to = into.first_image + first;
    decode_records(format_, {.bytes = records, .file = file.path(), .first_index = first},
                   split.images.get() + to * kCifarImageBytes, split.labels.data() + to);
  });
  end(batch);
}

void CifarAssembly::add_batch(size_t batch, std::span<const std::byte> bytes, const std::string& file) {
  if (is_pickle(bytes)) {
    add_pickled(batch, bytes, file);
    return;
  }
  check_record_size(batch, static_cast<int64_t>(bytes.size()), file);
  begin(batch, file);
  const CifarBatch& into = format_.batches[batch];
  Split& split = split_of(into);
  parallel_ranges(into.num_images, kImagesAtOnce, [&](int64_t first, int64_t last) {
    const int64_t to = into.first_image + first;
    const auto records = bytes.subspan(static_cast<size_t>(first * format_.record_bytes()),
                                       static_cast<size_t>((last - first) * format_.record_bytes()));
    decode_records(format_, {.bytes = records, .file = file, .first_index = first},
                   split.images.get() + to * kCifarImageBytes, split.labels.data() + to);
  });
  end(batch);
}

void CifarAssembly::add_pickled(size_t batch, std::span<const std::byte> bytes, const std::string& file) {
  const CifarBatch& into = format_.batches[batch];
  const PickledBatch pickled = read_pickled_batch(bytes, file, format_.labels_key);
  if (pickled.num_images != into.num_images) {
    fail("{}: {} images, expected {}; download the archive again", file, pickled.num_images, into.num_images);
  }
  begin(batch, file);
  Split& split = split_of(into);
  for (size_t i = 0; i < pickled.labels.size(); ++i) {
    check_cifar_label(file, static_cast<int64_t>(i), pickled.labels[i], format_.num_classes);
    split.labels[static_cast<size_t>(into.first_image) + i] = pickled.labels[i];
  }
  parallel_ranges(into.num_images, kImagesAtOnce, [&](int64_t first, int64_t last) {
    const std::byte* planes = pickled.images.data() + first * kCifarImageBytes;
    std::vector<std::byte> rows;  // [last - first, 3072] u8
    if (pickled.is_column_major) {
      const int64_t count = last - first;
      rows.resize(static_cast<size_t>(count * kCifarImageBytes));
      for (int64_t k = 0; k < kCifarImageBytes; ++k) {
        const std::byte* column = pickled.images.data() + k * into.num_images + first;
        for (int64_t i = 0; i < count; ++i) rows[static_cast<size_t>(i * kCifarImageBytes + k)] = column[i];
      }
      planes = rows.data();
    }
    std::byte* out = split.images.get() + (into.first_image + first) * kCifarImageBytes;
    for (int64_t i = 0; i < last - first; ++i) {
      interleave_planes(planes + i * kCifarImageBytes, out + i * kCifarImageBytes);
    }
  });
  end(batch);
}

void CifarAssembly::add_meta(std::span<const std::byte> bytes, const std::string& file) {
  check_meta_size(static_cast<int64_t>(bytes.size()), file);
  std::vector<std::string> names =
      is_pickle(bytes) ? read_pickled_names(bytes, file, format_.names_key, format_.num_classes)
                       : read_lines(as_string(bytes));
  if (names.size() != static_cast<size_t>(format_.num_classes)) {
    fail("{}: {} class names, expected {}; download the archive again", file, names.size(),
         format_.num_classes);
  }
  for (const std::string& name : names) {
    // They end in JSON, terminals and file names.
    const bool is_plain =
        std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c <= 0x7e; });
    if (name.empty() || !is_plain) {
      fail(
          "{}: class name {} is empty or has unprintable characters, expected plain text; download the "
          "archive again",
          file, &name - names.data());
    }
  }
  class_names_ = std::move(names);
}

HostDataset CifarAssembly::finish() {
  std::string missing;
  for (size_t i = 0; i < has_batch_.size(); ++i) {
    if (!has_batch_[i]) missing += (missing.empty() ? "" : ", ") + format_.batches[i].name;
  }
  if (!missing.empty()) {
    fail("{}: no {} in it, expected all {} batches of {}; download the archive again", place_, missing,
         format_.batches.size(), format_.kind);
  }
  HostDataset dataset;
  dataset.origin = format_.kind + ":" + place_;
  dataset.class_names = class_names_.empty() ? format_.class_names : std::move(class_names_);
  const FieldSpec spec{.name = "image",
                       .type = SampleType::kU8,
                       .height = kCifarSide,
                       .width = kCifarSide,
                       .channels = kCifarChannels};
  const auto finished = [&](Split& from) {
    const int64_t size_bytes = spec.size_bytes(static_cast<int64_t>(from.labels.size()));
    return HostSplit{.fields = {{.spec = spec, .values = from.images, .size_bytes = size_bytes}},
                     .labels = std::move(from.labels)};
  };
  dataset.train = finished(train_);
  dataset.test = finished(test_);
  dataset.statistics = {compute_statistics(dataset.train.fields[0], dataset.train.num_samples())};
  return dataset;
}

}  // namespace espalier::data
