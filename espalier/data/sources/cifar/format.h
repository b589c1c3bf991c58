// What the CIFAR-10 and CIFAR-100 releases consist of: file names, how many images each holds, class names.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::data {

// 32 x 32 x 3 bytes; in the files three planes of 1024 (red, green, blue).
constexpr int64_t kCifarSide = 32;
constexpr int64_t kCifarChannels = 3;
constexpr int64_t kCifarImageBytes = kCifarSide * kCifarSide * kCifarChannels;

// What to do about an archive or a file of it that is damaged.
constexpr std::string_view kRemedy = "download the archive again";

struct CifarBatch {
  std::string name;  // in the Python version; the binary version adds ".bin"
  bool is_train = true;
  int64_t first_image = 0;  // its place in its split
  int64_t num_images = 0;
};

struct CifarFormat {
  std::string kind;  // "cifar10"
  int64_t num_classes = 0;
  int64_t num_coarse_classes = 0;  // 0: no coarse label stands before the fine one in the binary version
  std::vector<CifarBatch> batches;
  std::array<std::string, 2> folders;    // where the archives unpack to: binary, Python
  std::array<std::string, 2> archives;   // their names as downloaded
  std::array<std::string, 2> meta;       // files with the class names: text, pickle
  std::string labels_key;                // in a pickled batch
  std::string names_key;                 // in the pickled meta
  std::vector<std::string> class_names;  // where no meta file is there

  int64_t label_bytes() const { return num_coarse_classes > 0 ? 2 : 1; }
  int64_t record_bytes() const { return label_bytes() + kCifarImageBytes; }
  int64_t num_images(bool is_train) const;
};

// The official release with 10 or 100 classes.
CifarFormat cifar_format(int num_classes);

}  // namespace espalier::data
