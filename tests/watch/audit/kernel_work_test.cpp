#include "espalier/watch/audit/kernel_work.h"

#include <gtest/gtest.h>

namespace espalier::watch {
namespace {

TEST(KernelWork, KnowsKernelsByTheirNames) {
  const std::pair<const char*, WorkKind> names[] = {
      {"sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x64x64",
       WorkKind::kConvolution},
      {"void cudnn::cnn::wgrad2d_grouped_direct_kernel<__nv_bfloat16>", WorkKind::kConvolution},
      {"void espalier::lanes::vector_conv::(anonymous "
       "namespace)::forward_kernel<1>(espalier::lanes::ConvArgs)",
       WorkKind::kConvolution},
      {"void espalier::lanes::(anonymous namespace)::product_kernel<float, 4>(espalier::lanes::(anonymous "
       "namespace)::DepthwiseProduct)",
       WorkKind::kConvolution},
      {"void espalier::grow::(anonymous namespace)::blend_kernel<__nv_bfloat16, "
       "8>(espalier::grow::BlendArgs)",
       WorkKind::kElementwise},
      {"nvjet_tst_128x64_64x8_2x1_v_bz_TNN", WorkKind::kMatrixProduct},
      {"void espalier::lanes::batch_norm::(anonymous namespace)::apply_kernel<__nv_bfloat16, 4, "
       "true>(espalier::lanes::NormArgs, espalier::lanes::batch_norm::Windows, int, int)",
       WorkKind::kNorm},
      {"void at::native::batch_norm_transform_input_channels_last_kernel<c10::BFloat16>", WorkKind::kNorm},
      {"void espalier::lanes::(anonymous namespace)::backward_kernel<float, 4>(espalier::lanes::PoolArgs, "
       "int, int)",
       WorkKind::kPooling},
      {"void at::native::max_pool_forward_nhwc<c10::BFloat16>", WorkKind::kPooling},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
       WorkKind::kElementwise},
      {"void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16>", WorkKind::kReformat},
      {"Memcpy DtoD (Device -> Device)", WorkKind::kCopy},
      {"something else", WorkKind::kOther}};
  for (const auto& [name, kind] : names) EXPECT_EQ(work_text(work_of(name)), work_text(kind)) << name;
}

}  // namespace
}  // namespace espalier::watch
