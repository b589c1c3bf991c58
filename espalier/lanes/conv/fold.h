// A convolution of few channels with stride 2, folded: every 2x2 pixels become one of four times the
// channels, and the filter one of half the size and stride 1, which tensor cores have a use for (a 7x7 of 3
// channels becomes a 4x4 of 12). The products are the same; those that padding adds are zeros.
//
//   folded x  (y, x, (dy * 2 + dx) * C + c) = x  (2 (y + first) + dy, 2 (x + first) + dx, c)
//   folded w  (r, s, (dy * 2 + dx) * C + c) = w  (2 (r + first) + dy + padding, ..., c)
//
// zeros where the right side lies outside. Pure arithmetic and launches, no torch.
#pragma once

#include "espalier/lanes/conv/kernel.h"

namespace espalier::lanes {

struct ConvFold {
  ConvSizes sizes;     // the folded problem's: stride 1, no padding
  int32_t first = 0;   // the first pair of rows that a filter touches, from its output's place: 0 or negative
  int32_t kernel = 0;  // the problem's own, as the next ones are
  int32_t padding = 0;
  int32_t channels = 0;
  int32_t height = 0;
  int32_t width = 0;
};

// Whether folding takes the problem (its gradient of the data it does not), and how.
bool takes_fold(const ConvSizes& sizes);
ConvFold fold_of(const ConvSizes& sizes);

// x [L,B,H,W,C] to [L,B,H',W',C'], of values of 2 bytes.
cudaError_t launch_fold_images(const ConvFold& fold, Stack x, Stack folded, cudaStream_t stream);
// weight [L,K,R,S,C] to [L,K,R',S',C'], both of `type`; and back, what padding added left out.
cudaError_t launch_fold_weight(const ConvFold& fold, KernelType type, Stack weight, Stack folded,
                               cudaStream_t stream);
cudaError_t launch_unfold_weight(const ConvFold& fold, KernelType type, Stack folded, Stack weight,
                                 cudaStream_t stream);

}  // namespace espalier::lanes
