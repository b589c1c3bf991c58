// Writes the form that safetensors.cpp reads; what it holds is said there.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors_writer.h"
#include "espalier/core/text/utf8.h"
#include "espalier/data/sources/source.h"

namespace espalier::data {
namespace {

using Json = nlohmann::json;

std::string array_of(const std::string& file, const std::vector<std::string>& texts) {
  for (const auto& text : texts) {
    if (!is_utf8(text)) fail("{}: cannot hold the name {}: it is not UTF-8", file, in_quotes(text));
  }
  return Json(texts).dump();
}

}  // namespace

void write_safetensors(const HostDataset& dataset, const std::string& file, const Progress& progress) {
  check_dataset(dataset);
  struct Part {
    TensorSpec spec;
    const std::byte* values;
  };
  std::vector<Part> parts;
  Metadata metadata;
  std::vector<std::string> names;
  for (const auto* split : {&dataset.train, &dataset.validation, &dataset.test}) {
    if (split == &dataset.validation && !dataset.has_validation()) continue;
    const std::string prefix = split == &dataset.train  ? "train."
                               : split == &dataset.test ? "test."
                                                        : "validation.";
    parts.push_back({{prefix + "labels", StoredType::kI64, {split->num_samples()}},
                     reinterpret_cast<const std::byte*>(split->labels.data())});
    for (const auto& field : split->fields) {
      const auto& spec = field.spec;
      if (spec.name == "labels") fail("{}: cannot hold a field named labels", file);
      parts.push_back({{prefix + spec.name,
                        spec.type == SampleType::kU8 ? StoredType::kU8 : StoredType::kU16,
                        {split->num_samples(), spec.height, spec.width, spec.channels}},
                       field.values.get()});
    }
  }
  for (size_t i = 0; i < dataset.train.fields.size(); ++i) {
    const std::string& name = dataset.train.fields[i].spec.name;
    names.push_back(name);
    metadata["mean." + name] = Json(dataset.statistics[i].mean).dump();
    metadata["std." + name] = Json(dataset.statistics[i].stddev).dump();
  }
  metadata["class_names"] = array_of(file, dataset.class_names);
  metadata["fields"] = array_of(file, names);

  // Wider types first: then every tensor is aligned to its type without padding.
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
    return espalier::bytes_of(a.spec.type) > espalier::bytes_of(b.spec.type);
  });
  std::vector<TensorSpec> specs;
  for (const auto& part : parts) specs.push_back(part.spec);
  SafetensorsWriter writer(file, specs, metadata);

  const std::string what = "write " + file;
  constexpr size_t kPieceBytes = size_t{8} << 20;  // often enough to move a progress bar
  int64_t done = 0;
  if (progress) progress(what, 0, writer.data_bytes());
  for (const auto& part : parts) {
    std::span<const std::byte> rest(part.values, static_cast<size_t>(part.spec.size_bytes()));
    while (!rest.empty()) {
      const auto piece = rest.first(std::min(kPieceBytes, rest.size()));
      writer.write(piece);
      rest = rest.subspan(piece.size());
      done += static_cast<int64_t>(piece.size());
      if (progress) progress(what, done, writer.data_bytes());
    }
  }
  writer.commit();
}

}  // namespace espalier::data
