// Reads the pickles of CIFAR's Python version without running anything.
//
// A pickle is a program for a small stack machine. This reader knows only the instructions that those files
// (and what numpy writes for the same content today, protocols 2 to 4) consist of, and only the names that
// make up a numpy array (_reconstruct, ndarray, dtype, and _codecs.encode for its bytes), which it never
// calls. Anything else is refused with its offset. Kept true: every length is checked against the bytes that
// are left before it is used; at most kMaxPickleOpcodes instructions run, so memory stays in proportion to
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier::data {

// CIFAR-100's training batch has about 250,000.
constexpr int64_t kMaxPickleOpcodes = int64_t{1} << 20;

// True where the bytes begin as a pickle of protocol 2 or later. No CIFAR record begins so: 0x80 is no label.
bool is_pickle(std::span<const std::byte> bytes);

struct PickledBatch {
  int64_t num_images = 0;
  bool is_column_major = false;       // numpy's fortran_order: value k of image n is at k * num_images + n
  std::span<const std::byte> images;  // [N,3072] u8; in the pickle's bytes, or in `decoded`
  std::vector<int64_t> labels;        // [N] i64; not yet checked against the number of classes
  std::vector<std::byte> decoded;     // backs `images` where the pickle holds it as text
};

// A batch: a dict with "data" and `labels_key`. `file` is the name that errors give; `pickle` must outlive
// the result.
PickledBatch read_pickled_batch(std::span<const std::byte> pickle, const std::string& file,
                                const std::string& labels_key);

// A meta file: a dict whose `names_key` is a list of `num_names` strings.
std::vector<std::string> read_pickled_names(std::span<const std::byte> pickle, const std::string& file,
                                            const std::string& names_key, int64_t num_names);

}  // namespace espalier::data
