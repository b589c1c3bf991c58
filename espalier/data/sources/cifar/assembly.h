// Collects the batches of a CIFAR release, in any order and from any container, into one dataset.
//
// Kept true: buffers are sized by the release's description, never by a file; each batch is added once;
// finish() fails unless all are there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/data/sources/cifar/format.h"
#include "espalier/data/sources/host_dataset.h"
#include "espalier/data/sources/input_file.h"

namespace espalier::data {

class CifarAssembly {
 public:
  // `place` is the directory or archive, for errors. All three must outlive the assembly.
  CifarAssembly(const CifarFormat& format, const std::string& place, const Progress& progress);

  // Which batch a file of this name (without directories) is, if any; likewise for the class names.
  std::optional<size_t> find_batch(std::string_view name) const;
  bool is_meta(std::string_view name) const;

  // Refuses a size that no version of the batch, or of the meta file, can have: before anything is allocated.
  void check_batch_size(size_t batch, int64_t size_bytes, const std::string& file) const;
  void check_meta_size(int64_t size_bytes, const std::string& file) const;

  // The binary and the Python version are told apart by content. A binary file is read in parts, on all
  // cores.
  void add_batch(size_t batch, const InputFile& file);
  void add_batch(size_t batch, std::span<const std::byte> bytes, const std::string& file);
  void add_meta(std::span<const std::byte> bytes, const std::string& file);

  // With statistics.
  HostDataset finish();

 private:
  struct Split {
    std::shared_ptr<std::byte> images;  // [N,32,32,3] u8
    std::vector<int64_t> labels;        // [N] i64
  };

  Split& split_of(const CifarBatch& batch) { return batch.is_train ? train_ : test_; }
  void begin(size_t batch, const std::string& file);
  void end(size_t batch);
  void check_record_size(size_t batch, int64_t size_bytes, const std::string& file) const;
  void add_pickled(size_t batch, std::span<const std::byte> bytes, const std::string& file);

  const CifarFormat& format_;
  const std::string& place_;
  const Progress& progress_;
  Split train_;
  Split test_;
  std::vector<bool> has_batch_;
  std::vector<std::string> class_names_;
  int64_t num_images_done_ = 0;
};

}  // namespace espalier::data
