// safetensors:FILE, the form that loads without a pass over the pixels.
//
// Tensors: train.<field>, test.<field> [N,H,W,C] U8 or U16; train.labels, test.labels [N] I64; and the same
// under validation. where the data has such a split of its own. Metadata, each
// a string that holds a JSON array: class_names; fields (their order; without it, that of the file);
// mean.<field> and std.<field>, one number per channel (without them they are computed). Anything else in the
// metadata is ignored, any other tensor is refused.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/files/mapped.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/core/text/utf8.h"
#include "espalier/data/sources/source.h"

namespace espalier::data {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kLabels = "labels";
constexpr int64_t kMaxChannels = 65535;

// One JSON array of strings, or one of numbers. Event by event, so that a hostile text cannot nest deeply or
// build a large tree: what it makes is no larger than the text.
class FlatArrayReader : public nlohmann::json_sax<Json> {
 public:
  enum class Kind { kStrings, kNumbers };
  explicit FlatArrayReader(Kind kind) : kind_(kind) {}

  bool start_array(size_t) override { return depth_++ == 0; }
  bool end_array() override { return true; }
  bool string(string_t& text) override {
    strings.push_back(std::move(text));
    return depth_ == 1 && kind_ == Kind::kStrings;
  }
  bool number_float(number_float_t value, const string_t&) override {
    numbers.push_back(value);
    return depth_ == 1 && kind_ == Kind::kNumbers;
  }
  bool number_integer(number_integer_t value) override {
    return number_float(static_cast<double>(value), {});
  }
  bool number_unsigned(number_unsigned_t value) override {
    return number_float(static_cast<double>(value), {});
  }
  bool null() override { return false; }
  bool boolean(bool) override { return false; }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return false; }
  bool key(string_t&) override { return false; }
  bool end_object() override { return false; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  std::vector<std::string> strings;
  std::vector<double> numbers;

 private:
  Kind kind_;
  int depth_ = 0;
};

// Null where the metadata has no such key.
std::optional<FlatArrayReader> read_array(const std::string& path, const Metadata& metadata,
                                          const std::string& key, FlatArrayReader::Kind kind) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  FlatArrayReader reader(kind);
  // The parser takes a zero byte for the end of the text.
  if (found->second.find('\0') != std::string::npos || !Json::sax_parse(found->second, &reader)) {
    fail("{}: metadata {}: want a JSON array of {}, got {}", path, in_quotes(key),
         kind == FlatArrayReader::Kind::kStrings ? "strings" : "numbers", in_quotes(found->second));
  }
  return reader;
}

class DatasetReader {
 public:
  explicit DatasetReader(const std::string& path)
      : path_(path), file_(map_file(path)), header_(parse_safetensors(file_.bytes(), path)) {
    for (const auto& tensor : header_.tensors) tensors_.emplace(tensor.name, &tensor);
  }

  HostDataset read() {
    HostDataset dataset;
    auto names = read_array(path_, header_.metadata, "class_names", FlatArrayReader::Kind::kStrings);
    if (!names || names->strings.empty()) {
      fail("{}: has no class names; want the metadata \"class_names\", a JSON array of strings", path_);
    }
    dataset.class_names = std::move(names->strings);
    const auto fields = field_names();
    for (const auto& tensor : header_.tensors) check_belongs(tensor.name, fields);
    dataset.train = read_split("train", fields, dataset.num_classes());
    dataset.test = read_split("test", fields, dataset.num_classes());
    if (tensors_.contains("validation.labels"))
      dataset.validation = read_split("validation", fields, dataset.num_classes());
    for (const auto& field : dataset.train.fields) {
      dataset.statistics.push_back(read_statistics(field, dataset.train.num_samples()));
    }
    return dataset;
  }

 private:
  std::vector<std::string> field_names() const {
    const auto given = read_array(path_, header_.metadata, "fields", FlatArrayReader::Kind::kStrings);
    std::vector<std::string> names;
    if (given) {
      names = given->strings;
    } else {
      for (const auto& tensor : header_.tensors) {
        if (tensor.name.starts_with("train.") && tensor.name != "train.labels")
          names.push_back(tensor.name.substr(6));
      }
    }
    if (names.empty()) fail("{}: has no field; want tensors named train.<field> and test.<field>", path_);
    std::set<std::string_view> seen{kLabels};
    for (const auto& name : names) {
      if (name.empty() || !seen.insert(name).second) {
        fail("{}: {} cannot be the name of a field, or names two of them", path_, in_quotes(name));
      }
    }
    return names;
  }

  void check_belongs(const std::string& name, const std::vector<std::string>& fields) const {
    const size_t dot = name.find('.');
    const std::string_view split = std::string_view(name).substr(0, dot);
    const std::string_view rest = dot == std::string::npos ? "" : std::string_view(name).substr(dot + 1);
    if ((split == "train" || split == "test" ||
         (split == "validation" && tensors_.contains("validation.labels"))) &&
        (rest == kLabels || std::find(fields.begin(), fields.end(), rest) != fields.end())) {
      return;
    }
    fail(
        "{}: tensor {} is not part of a dataset; want train., test. or validation. followed by labels or one "
        "of its "
        "fields",
        path_, in_quotes(name));
  }

  const TensorEntry& find(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) fail("{}: has no tensor {}", path_, in_quotes(name));
    return *found->second;
  }

  HostSplit read_split(const std::string& split_name, const std::vector<std::string>& fields,
                       int64_t num_classes) const {
    HostSplit split;
    split.labels = read_labels(split_name + ".labels", num_classes);
    for (const auto& name : fields) split.fields.push_back(read_field(split_name, name, split.num_samples()));
    return split;
  }

  std::vector<int64_t> read_labels(const std::string& name, int64_t num_classes) const {
    const TensorEntry& tensor = find(name);
    if (tensor.type != StoredType::kI64 || tensor.shape.size() != 1) {
      fail("{}: tensor {} is {} of rank {}, want I64 of rank 1", path_, in_quotes(name),
           espalier::name_of(tensor.type), tensor.shape.size());
    }
    std::vector<int64_t> labels(static_cast<size_t>(tensor.shape[0]));
    // Copied, not viewed: the offset need not be a multiple of 8.
    if (!labels.empty()) {
      std::memcpy(labels.data(), file_.data.get() + tensor.offset_bytes,
                  static_cast<size_t>(tensor.length_bytes));
    }
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] < 0 || labels[i] >= num_classes) {
        fail("{}: {}[{}] is {}, want 0 to {}: the file names {} classes", path_, name, i, labels[i],
             num_classes - 1, num_classes);
      }
    }
    return labels;
  }

  HostField read_field(const std::string& split_name, const std::string& name, int64_t num_samples) const {
    const TensorEntry& tensor = find(split_name + "." + name);
    if ((tensor.type != StoredType::kU8 && tensor.type != StoredType::kU16) || tensor.shape.size() != 4) {
      fail("{}: tensor {} is {} of rank {}, want U8 or U16 of rank 4, [N,H,W,C]", path_,
           in_quotes(tensor.name), espalier::name_of(tensor.type), tensor.shape.size());
    }
    if (tensor.shape[0] != num_samples) {
      fail("{}: tensor {} has {} samples, but there are {} labels", path_, in_quotes(tensor.name),
           tensor.shape[0], num_samples);
    }
    HostField field;
    field.spec = {.name = name,
                  .type = tensor.type == StoredType::kU8 ? SampleType::kU8 : SampleType::kU16,
                  .height = tensor.shape[1],
                  .width = tensor.shape[2],
                  .channels = tensor.shape[3]};
    check_extents(tensor);
    field.size_bytes = tensor.length_bytes;
    const std::byte* begin = file_.data.get() + tensor.offset_bytes;
    if (tensor.offset_bytes % bytes_of(field.spec.type) == 0) {
      field.values = std::shared_ptr<const std::byte>(file_.data, begin);
    } else {
      // Legal in the format, though our writer never does it: 16-bit values must be aligned to be read as
      // such.
      auto copy = allocate_host(tensor.length_bytes);
      std::memcpy(copy.get(), begin, static_cast<size_t>(tensor.length_bytes));
      field.values = std::move(copy);
    }
    return field;
  }

  // With no samples the product of a shape is 0 whatever H, W and C: so a sample's own size is checked apart,
  // and the channels, of which each has statistics.
  void check_extents(const TensorEntry& tensor) const {
    int64_t size_bytes = espalier::bytes_of(tensor.type);
    for (size_t axis = 1; axis < 4; ++axis) {
      if (tensor.shape[axis] < 1 || __builtin_mul_overflow(size_bytes, tensor.shape[axis], &size_bytes)) {
        fail("{}: tensor {} has samples of {}x{}x{}, want sides of at least 1 that fit in memory", path_,
             in_quotes(tensor.name), tensor.shape[1], tensor.shape[2], tensor.shape[3]);
      }
    }
    if (tensor.shape[3] > kMaxChannels) {
      fail("{}: tensor {} has {} channels, want at most {}", path_, in_quotes(tensor.name), tensor.shape[3],
           kMaxChannels);
    }
  }

  FieldStatistics read_statistics(const HostField& field, int64_t num_samples) const {
    const std::string& name = field.spec.name;
    auto mean = read_array(path_, header_.metadata, "mean." + name, FlatArrayReader::Kind::kNumbers);
    auto stddev = read_array(path_, header_.metadata, "std." + name, FlatArrayReader::Kind::kNumbers);
    if (!mean && !stddev) return compute_statistics(field, num_samples);
    if (!mean || !stddev) {
      fail(
          "{}: field {} has only one of the metadata \"mean.<field>\" and \"std.<field>\", want both or "
          "neither",
          path_, in_quotes(name));
    }
    for (const auto* numbers : {&mean->numbers, &stddev->numbers}) {
      if (static_cast<int64_t>(numbers->size()) != field.spec.channels) {
        fail("{}: field {} has {} channels, but a mean or standard deviation for {}", path_, in_quotes(name),
             field.spec.channels, numbers->size());
      }
      for (const double value : *numbers) {
        if (!(value >= 0 && value <= 1)) {
          fail(
              "{}: field {} has a mean or standard deviation of {}, want 0 to 1: values are scaled by 255 or "
              "65535",
              path_, in_quotes(name), value);
        }
      }
    }
    return {std::move(mean->numbers), std::move(stddev->numbers)};
  }

  std::string path_;
  MappedFile file_;
  SafetensorsHeader header_;
  std::map<std::string_view, const TensorEntry*> tensors_;
};

}  // namespace

HostDataset load_safetensors(const std::string& place, const Progress& progress) {
  if (progress) progress("map " + place, 0, 1);
  HostDataset dataset = DatasetReader(place).read();
  std::error_code error;
  const auto canonical = std::filesystem::canonical(place, error);
  dataset.origin = "safetensors:" + (error ? place : canonical.string());
  if (progress) progress("map " + place, 1, 1);
  return dataset;
}

}  // namespace espalier::data
