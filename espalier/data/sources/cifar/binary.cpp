#include "espalier/data/sources/cifar/binary.h"

#include "espalier/core/error.h"

namespace espalier::data {

void interleave_planes(const std::byte* planes, std::byte* out) {
  constexpr int64_t kPlane = kCifarSide * kCifarSide;
  const std::byte* __restrict red = planes;
  const std::byte* __restrict green = planes + kPlane;
  const std::byte* __restrict blue = planes + 2 * kPlane;
  std::byte* __restrict pixels = out;
  for (int64_t i = 0; i < kPlane; ++i) {
    pixels[3 * i] = red[i];
    pixels[3 * i + 1] = green[i];
    pixels[3 * i + 2] = blue[i];
  }
}

void check_cifar_label(const std::string& file, int64_t index, int64_t label, int64_t num_classes) {
  if (label < 0 || label >= num_classes) {
    fail("{}: image {} has label {}, expected 0 to {}; the file is damaged or of another dataset", file,
         index, label, num_classes - 1);
  }
}

void decode_records(const CifarFormat& format, const CifarRecords& records, std::byte* images,
                    int64_t* labels) {
  const auto record_bytes = static_cast<size_t>(format.record_bytes());
  const auto label_bytes = static_cast<size_t>(format.label_bytes());
  if (records.bytes.size() % record_bytes != 0) {
    fail("{}: {} bytes are not whole records of {} bytes; download the archive again", records.file,
         records.bytes.size(), record_bytes);
  }
  const size_t count = records.bytes.size() / record_bytes;
  for (size_t i = 0; i < count; ++i) {
    const std::byte* record = records.bytes.data() + i * record_bytes;
    const int64_t index = records.first_index + static_cast<int64_t>(i);
    if (format.num_coarse_classes > 0) {
      check_cifar_label(records.file, index, std::to_integer<int64_t>(record[0]), format.num_coarse_classes);
    }
    const auto label = std::to_integer<int64_t>(record[label_bytes - 1]);
    check_cifar_label(records.file, index, label, format.num_classes);
    labels[i] = label;
    interleave_planes(record + label_bytes, images + i * static_cast<size_t>(kCifarImageBytes));
  }
}

}  // namespace espalier::data
