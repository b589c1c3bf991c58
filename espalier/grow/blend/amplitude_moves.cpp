#include "espalier/grow/blend/amplitude_moves.h"

#include "espalier/grow/blend/amplitude_moves_kernel.h"
#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include "espalier/lanes/launch.h"
#endif

namespace espalier::grow {

void move_amplitudes_(const at::Tensor& amplitudes, const at::Tensor& states, const at::Tensor& batch,
                      int64_t batches_per_epoch) {
  constexpr auto kStateBytes = static_cast<int64_t>(sizeof(SlotState));
  TORCH_CHECK(amplitudes.dim() == 2 && amplitudes.scalar_type() == at::kFloat && amplitudes.is_contiguous(),
              "move_amplitudes_: amplitudes: want [S,L] f32, dense, got ", amplitudes.sizes(), " ",
              amplitudes.scalar_type());
  lanes::check_sizes(states, {amplitudes.numel() * kStateBytes}, "move_amplitudes_", "states",
                     "[L * S * sizeof(SlotState)]");
  lanes::check_sizes(batch, {1}, "move_amplitudes_", "batch", "[1]");
  TORCH_CHECK(
      states.is_contiguous() && states.scalar_type() == at::kByte && batch.scalar_type() == at::kDouble,
      "move_amplitudes_: states, batch: want u8, dense, and f64, got ", states.scalar_type(), ", ",
      batch.scalar_type());
  TORCH_CHECK(states.device() == amplitudes.device() && batch.device() == amplitudes.device(),
              "move_amplitudes_: states, batch: want them on ", amplitudes.device(), ", got ",
              states.device(), ", ", batch.device());
  TORCH_CHECK(batches_per_epoch >= 1, "move_amplitudes_: batches_per_epoch: want at least 1, got ",
              batches_per_epoch);
  if (amplitudes.numel() == 0) return;
  const AmplitudeArgs args{.states = reinterpret_cast<const SlotState*>(states.const_data_ptr<uint8_t>()),
                           .batch = batch.const_data_ptr<double>(),
                           .batches_per_epoch = static_cast<double>(batches_per_epoch),
                           .lanes = amplitudes.size(1),
                           .slots = amplitudes.size(0),
                           .amplitudes = amplitudes.mutable_data_ptr<float>()};
#if ESPALIER_WITH_CUDA
  if (amplitudes.is_cuda()) {
    const c10::cuda::CUDAGuard guard(amplitudes.device());
    C10_CUDA_CHECK(launch_amplitudes(args, lanes::stream_of(amplitudes)));
    return;
  }
#endif
  for (int64_t place = 0; place < amplitudes.numel(); ++place)
    args.amplitudes[place] = args.amplitude_at(place);
}

}  // namespace espalier::grow
