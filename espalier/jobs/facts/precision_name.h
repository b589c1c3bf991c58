// What environment.json calls the type that a job computes in: the words of --precision.
#pragma once

#include <c10/core/ScalarType.h>

namespace espalier::jobs {

inline const char* precision_name(c10::ScalarType compute) {
  return compute == c10::ScalarType::Float ? "fp32" : compute == c10::ScalarType::Half ? "fp16" : "bf16";
}

}  // namespace espalier::jobs
