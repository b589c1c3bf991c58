#include "espalier/jobs/facts/dataset.h"

#include <ATen/core/Tensor.h>

#include <nlohmann/json.hpp>
#include <span>

#include "espalier/core/error.h"
#include "espalier/core/files/crc32c.h"

namespace espalier::jobs {
namespace {

using Json = nlohmann::ordered_json;

uint32_t checksum(const at::Tensor& values) {
  const at::Tensor host = values.to(at::kCPU).contiguous(c10::MemoryFormat::Contiguous);
  return crc32c(std::as_bytes(std::span(static_cast<const char*>(host.const_data_ptr()), host.nbytes())));
}

}  // namespace

Json dataset_facts(const data::ResidentDataset& dataset) {
  Json facts{{"classes", dataset.class_names}};
  for (const auto& [name, split] :
       {std::pair{"train", &dataset.train}, std::pair{"validation", &dataset.validation},
        std::pair{"test", &dataset.test}}) {
    Json own{{"samples", split->num_samples()}, {"labels", checksum(split->labels)}};
    for (const data::ResidentField& field : split->fields) {
      const data::FieldSpec& spec = field.spec;
      // The affine values are made of means and deviations over all pixels.
      own["fields"].push_back({{"name", spec.name},
                               {"shape", {spec.channels, spec.height, spec.width}},
                               {"affine", checksum(field.affine)}});
    }
    facts[name] = own;
  }
  return facts;
}

void check_can_decide(const data::ResidentDataset& dataset, const std::string& controller) {
  if (controller == "none" || dataset.validation.num_samples() > 0) return;
  fail_usage(
      "--validation 0: --controller {} decides by the validation split: leave --validation out, or give "
      "--controller none",
      controller);
}

void clear_validation(Json& line) {
  for (const char* const key :
       {"validation_loss", "validation_accuracy", "best_validation_accuracy", "worst_validation_accuracy",
        "validation_mean_class_accuracy", "validation_error"})
    if (line.contains(key)) line[key] = nullptr;
}

}  // namespace espalier::jobs
