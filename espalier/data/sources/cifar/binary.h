// Decodes the records of CIFAR's binary version, and turns its planar images into channels-last ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "espalier/data/sources/cifar/format.h"

namespace espalier::data {

// One image: three planes of 1024 -> 1024 pixels of three.
//   planes  [3,32,32] u8, out [32,32,3] u8; they do not overlap
void interleave_planes(const std::byte* planes, std::byte* out);

// Fails unless `label` lies in [0, num_classes), naming the file, the image's index in it and the value.
void check_cifar_label(const std::string& file, int64_t index, int64_t label, int64_t num_classes);

struct CifarRecords {
  std::span<const std::byte> bytes;  // whole records: [coarse label,] label, [3,32,32] u8
  std::string file;                  // for errors
  int64_t first_index = 0;           // the index of the first record in that file
};

// Writes one image and one label per record. Fails on a label out of range or a partial record.
//   images  [N,32,32,3] u8, labels [N] i64, with N = bytes.size() / format.record_bytes()
void decode_records(const CifarFormat& format, const CifarRecords& records, std::byte* images,
                    int64_t* labels);

}  // namespace espalier::data
