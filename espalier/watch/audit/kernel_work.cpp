#include "espalier/watch/audit/kernel_work.h"

#include "espalier/watch/audit/layout_kind.h"

namespace espalier::watch {
namespace {

struct NamedWork {
  std::string_view part;
  WorkKind kind;
};

// The first that a name contains decides. Ours are known by the struct that they are handed; cuDNN's and
// cuBLAS's by the words that their names are made of.
constexpr NamedWork kNamedWork[] = {
    {"::NormArgs", WorkKind::kNorm},
    {"::ConvArgs", WorkKind::kConvolution},
    {"::ConvFold", WorkKind::kConvolution},
    {"widen_weight", WorkKind::kConvolution},
    {"::Depthwise", WorkKind::kConvolution},
    {"::PoolArgs", WorkKind::kPooling},
    {"::LinearArgs", WorkKind::kMatrixProduct},
    {"::LossArgs", WorkKind::kElementwise},
    {"::ParameterTable", WorkKind::kElementwise},
    {"espalier::grow::", WorkKind::kElementwise},
    {"batch_norm", WorkKind::kNorm},
    {"bn_fw", WorkKind::kNorm},
    {"bn_bw", WorkKind::kNorm},
    {"Norm", WorkKind::kNorm},
    {"max_pool", WorkKind::kPooling},
    {"avg_pool", WorkKind::kPooling},
    {"pooling", WorkKind::kPooling},
    {"fprop", WorkKind::kConvolution},
    {"dgrad", WorkKind::kConvolution},
    {"wgrad", WorkKind::kConvolution},
    {"conv", WorkKind::kConvolution},
    {"Conv", WorkKind::kConvolution},
    {"cudnn", WorkKind::kConvolution},
    {"gemm", WorkKind::kMatrixProduct},
    {"Gemm", WorkKind::kMatrixProduct},
    {"gemv", WorkKind::kMatrixProduct},
    {"nvjet", WorkKind::kMatrixProduct},
    {"splitK", WorkKind::kMatrixProduct},
    {"elementwise", WorkKind::kElementwise},
    {"reduce", WorkKind::kElementwise},
    {"softmax", WorkKind::kElementwise},
    {"nll_loss", WorkKind::kElementwise},
    {"triton", WorkKind::kElementwise},
    {"index", WorkKind::kElementwise},
    {"fill", WorkKind::kElementwise},
};

}  // namespace

std::string_view work_text(WorkKind kind) {
  static constexpr std::string_view kTexts[kNumWorkKinds] = {
      "convolution", "matrix product", "norm", "pooling", "elementwise", "reformatting", "copy", "other"};
  return kTexts[static_cast<size_t>(kind)];
}

WorkKind work_of(std::string_view kernel) {
  const KernelKind moved = classify_kernel(kernel).kind;
  if (moved == KernelKind::kReformat) return WorkKind::kReformat;
  if (moved == KernelKind::kCopy) return WorkKind::kCopy;
  for (const NamedWork& named : kNamedWork)
    if (kernel.find(named.part) != std::string_view::npos) return named.kind;
  return WorkKind::kOther;
}

}  // namespace espalier::watch
