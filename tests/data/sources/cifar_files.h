// Writes tiny, valid CIFAR releases, byte for byte as the official ones are made: for tests and fuzzers.
#pragma once

#include <fmt/format.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "espalier/data/sources/cifar/format.h"
#include "tests/support/temporary_folder.h"

namespace espalier::data::testing {

using Files = std::vector<std::pair<std::string, std::string>>;  // name, content

inline std::span<const std::byte> bytes_of_string(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// The release with `num_images` in each batch.
inline CifarFormat tiny_format(int num_classes, int64_t num_images = 2) {
  CifarFormat format = cifar_format(num_classes);
  int64_t first = 0;
  for (CifarBatch& batch : format.batches) {
    batch.num_images = num_images;
    batch.first_image = batch.is_train ? first : 0;
    first += num_images;
  }
  return format;
}

// What the tiny releases hold: image `index` of batch `batch`.
inline int64_t label_of(const CifarFormat& format, size_t batch, int64_t index) {
  return (static_cast<int64_t>(batch) * 3 + index) % format.num_classes;
}
// `place` counts in file order: plane, row, column.
inline uint8_t value_of(size_t batch, int64_t index, int64_t place) {
  return static_cast<uint8_t>(static_cast<int64_t>(batch) * 40 + index * 7 + place / 1024 * 90 +
                              place % 1024 / 64);
}

inline std::string image_bytes(size_t batch, int64_t index) {
  std::string image;
  for (int64_t i = 0; i < kCifarImageBytes; ++i) image += static_cast<char>(value_of(batch, index, i));
  return image;
}

inline std::string binary_batch(const CifarFormat& format, size_t batch) {
  std::string file;
  for (int64_t i = 0; i < format.batches[batch].num_images; ++i) {
    const int64_t label = label_of(format, batch, i);
    if (format.num_coarse_classes > 0) file += static_cast<char>(label % format.num_coarse_classes);
    file += static_cast<char>(label);
    file += image_bytes(batch, i);
  }
  return file;
}

inline std::string little_endian(uint64_t value, int size) {
  std::string text;
  for (int i = 0; i < size; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

inline std::string short_string(const std::string& text) {
  return "U" + little_endian(text.size(), 1) + text;
}

// As Python 2's cPickle writes it, protocol 2.
inline std::string python_batch(const CifarFormat& format, size_t batch) {
  const int64_t num_images = format.batches[batch].num_images;
  std::string labels, images, names;
  for (int64_t i = 0; i < num_images; ++i) {
    labels += "K" + little_endian(static_cast<uint64_t>(label_of(format, batch, i)), 1);
    images += image_bytes(batch, i);
    names += short_string("image_" + std::to_string(i) + ".png") + "r" +
             little_endian(static_cast<uint64_t>(300 + i), 4);
  }
  using namespace std::string_literals;
  std::string file =
      "\x80\x02}q\x01("s + short_string("batch_label") + "q\x02" + short_string("batch 1 of 5") + "q\x03";
  file += short_string(format.labels_key) + "q\x04]q\x05(" + labels + "e";
  file += short_string("data") + "q\x06" + "cnumpy.core.multiarray\n_reconstruct\nq\x07" +
          "cnumpy\nndarray\nq\x08";
  file += "K\x00\x85U\x01"s + "b\x87Rq\x09(K\x01K" + little_endian(static_cast<uint64_t>(num_images), 1) +
          "M\x00\x0c\x86"s;
  file +=
      "cnumpy\ndtype\nq\x0aU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"s;
  file += "\x89T" + little_endian(images.size(), 4) + images + "tb";
  file += short_string("filenames") + "q\x0c]q\x0d(" + names + "eu.";
  return file;
}

// Two names are changed, so that a test can see where names come from.
inline std::vector<std::string> other_names(const CifarFormat& format) {
  std::vector<std::string> names = format.class_names;
  names[0] = "zeppelin";
  names[1] = "tram";
  return names;
}

inline std::string text_meta(const CifarFormat& format) {
  std::string file;
  for (const std::string& name : other_names(format)) file += name + "\n";
  return file + "\n";
}

inline std::string python_meta(const CifarFormat& format) {
  using namespace std::string_literals;
  std::string file = "\x80\x02}q\x01("s + short_string("num_vis") + "q\x02M\x00\x0c"s;
  file += short_string(format.names_key) + "q\x03]q\x04(";
  for (const std::string& name : other_names(format)) file += short_string(name) + "q\x05";
  return file + "eu.";
}

inline Files binary_files(const CifarFormat& format) {
  Files files;
  for (size_t i = 0; i < format.batches.size(); ++i) {
    files.emplace_back(format.batches[i].name + ".bin", binary_batch(format, i));
  }
  files.emplace_back(format.meta[0], text_meta(format));
  return files;
}

inline Files python_files(const CifarFormat& format) {
  Files files;
  for (size_t i = 0; i < format.batches.size(); ++i) {
    files.emplace_back(format.batches[i].name, python_batch(format, i));
  }
  files.emplace_back(format.meta[1], python_meta(format));
  return files;
}

// Sets a header's checksum field to what the rest of it sums up to.
inline void seal_header(std::string& tar, size_t at) {
  std::memset(tar.data() + at + 148, ' ', 8);
  unsigned sum = 0;
  for (size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(tar[at + i]);
  const std::string text = fmt::format("{:06o}", sum);
  std::memcpy(tar.data() + at + 148, text.c_str(), 7);
}

inline void append_member(std::string& tar, const std::string& name, const std::string& content,
                          char type = '0') {
  const size_t at = tar.size();
  tar.resize(at + 512);
  name.copy(tar.data() + at, 100);
  const std::string size = fmt::format("{:011o}", content.size());
  std::memcpy(tar.data() + at + 100, "0000644", 7);
  std::memcpy(tar.data() + at + 124, size.c_str(), 11);
  tar[at + 156] = type;
  std::memcpy(tar.data() + at + 257, "ustar\00000", 8);
  seal_header(tar, at);
  tar += content;
  tar.resize((tar.size() + 511) / 512 * 512);
}

inline std::string tar_of(const std::string& folder, const Files& files) {
  std::string tar;
  append_member(tar, folder + "/", "", '5');
  for (const auto& [name, content] : files) append_member(tar, folder + "/" + name, content);
  tar.resize((tar.size() + 1024 + 10239) / 10240 * 10240);
  return tar;
}

inline std::string gzip(const std::string& content) {
  z_stream stream = {};
  if (deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    throw std::runtime_error("deflateInit2");
  }
  std::string out(deflateBound(&stream, static_cast<uLong>(content.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));  // zlib reads it only
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class CifarFolder : public support::TemporaryFolder {
 public:
  using TemporaryFolder::write;
  void write(const std::string& folder, const Files& files) const {
    for (const auto& [name, content] : files) write(folder.empty() ? name : folder + "/" + name, content);
  }
};

}  // namespace espalier::data::testing
