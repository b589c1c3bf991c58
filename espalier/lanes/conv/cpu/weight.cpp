#include "espalier/lanes/conv/cpu/weight.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "espalier/lanes/conv/cpu/weight_tile.h"
#include "espalier/tensor/parallel.h"

namespace espalier::lanes {
namespace {

constexpr int64_t kRasterBytes = 4 << 20;   // samples rastered at once: what a last cache holds
constexpr int64_t kBlockBytes = 256 << 10;  // x and grad that all tiles walk before the next: a part of an L2
// Products added in T before they join the sums in double: more cost bits, fewer time. Where there
// are few pixels only a part of them, since there torch too rounds but a few times.
constexpr int64_t kFewestPixelsASum = 4, kMostPixelsASum = 256, kPartOfAllPixels = 16;
constexpr int64_t kMostShares = 64;            // tiles times shares of the rows: work for as many threads
constexpr int64_t kProductsAThread = 1 << 20;  // below this a thread is not worth waking

struct Sizes {
  Sizes(const at::Tensor& grad, const at::Tensor& x, const ConvGeometry& geometry,
        const at::Tensor& grad_weight)
      : batch(x.size(0)),
        channels(x.size(1)),
        height(x.size(2)),
        width(x.size(3)),
        filters(grad.size(1)),
        out_height(grad.size(2)),
        out_width(grad.size(3)),
        kernel_height(grad_weight.size(2)),
        kernel_width(grad_weight.size(3)),
        geometry(geometry),
        raster_height(height + 2 * geometry.padding),
        raster_row((width + 2 * geometry.padding) * channels) {}

  int64_t raster_sample() const { return raster_height * raster_row; }
  int64_t pixels() const { return batch * out_height * out_width; }
  int64_t rows_a_sum() const {
    return std::max<int64_t>(
        1, std::clamp(pixels() / kPartOfAllPixels, kFewestPixelsASum, kMostPixelsASum) / out_width);
  }
  int64_t filter_values() const { return kernel_height * kernel_width * channels / geometry.groups; }

  int64_t batch, channels, height, width;
  int64_t filters, out_height, out_width;
  int64_t kernel_height, kernel_width;
  ConvGeometry geometry;
  int64_t raster_height, raster_row;  // rows per sample; values per row
};

// A part of the gradient, and where it begins in x's raster, in grad and in the sums.
template <class T>
struct Tile {
  TileKernel<T> kernel;
  int64_t x, filter, sum, columns;
};

template <class T>
struct Tiles {
  std::vector<Tile<T>> all;
  bool is_b_grad = false;  // which of the two is read in vectors (weight_tile.h)
};

template <class T>
Tiles<T> dense_tiles(const Sizes& s) {
  const TileKernels<T>& kernels = tile_kernels<T>();
  const int64_t groups = s.geometry.groups, group_channels = s.channels / groups;
  // Without groups a row of taps is one run of values, in the raster as in the gradient.
  const int64_t runs = groups == 1 ? 1 : s.kernel_width;
  const int64_t run = s.kernel_width / runs * group_channels, filters = s.filters / groups;
  // Vectors of grad must be full: it ends where its last filter does, and what follows is not ours.
  Tiles<T> tiles;
  tiles.is_b_grad = run % kernels.width != 0 && filters % kernels.width == 0;
  const int64_t heights = tiles.is_b_grad ? run : filters, widths = tiles.is_b_grad ? filters : run;
  const int64_t widest = kMostVectors * kernels.width;
  for (int64_t tap = 0; tap < groups * s.kernel_height * runs; ++tap) {
    const int64_t group = tap / (s.kernel_height * runs);
    const int64_t r = tap / runs % s.kernel_height, run_in_row = tap % runs;
    for (int64_t i = 0; i < heights;) {
      const bool is_full = i + kernels.height <= heights;
      for (int64_t j = 0; j < widths; j += widest) {
        const int64_t columns = std::min(widths - j, widest);
        const int64_t filter = group * filters + (tiles.is_b_grad ? j : i), value = tiles.is_b_grad ? i : j;
        tiles.all.push_back({kernels.dense[is_full][(columns - 1) / kernels.width],
                             r * s.raster_row + run_in_row * s.channels + group * group_channels + value,
                             filter, filter * s.filter_values() + (r * runs + run_in_row) * run + value,
                             columns});
      }
      i += is_full ? kernels.height : 1;
    }
  }
  return tiles;
}

template <class T>
Tiles<T> depthwise_tiles(const Sizes& s) {
  const TileKernels<T>& kernels = tile_kernels<T>();
  const int64_t side = s.kernel_height == 3 && s.kernel_width == 3 ? 3 : 1;  // taps per tile
  const bool is_wide = s.filters >= kernels.depthwise_width;
  const int64_t most = is_wide ? kernels.depthwise_width : 1;
  Tiles<T> tiles;
  for (int64_t k = 0; k < s.filters; k += most) {
    const int64_t first = std::min(k, s.filters - most);  // the last tile reads some filters again
    for (int64_t r = 0; r < s.kernel_height; r += side)
      for (int64_t tap = 0; tap < s.kernel_width; tap += side)
        tiles.all.push_back({kernels.depthwise[is_wide][side == 3],
                             r * s.raster_row + tap * s.channels + first, first,
                             first * s.filter_values() + r * s.kernel_width + tap, most - (k - first)});
  }
  return tiles;
}

// Samples of x with their padding. to: [samples,Hp,Wp,C].
template <class T>
void fill_raster(const Sizes& s, const T* x, int64_t samples, T* to) {
  const int64_t row = s.width * s.channels, margin = s.geometry.padding * s.channels;
  const auto zero = [](T* from, int64_t values) {
    std::memset(from, 0, static_cast<size_t>(values) * sizeof(T));
  };
  const int64_t grain = std::max<int64_t>(1, kThreadValues / s.raster_row);
  parallel_for(0, samples * s.raster_height, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* row_to = to + i * s.raster_row;
      const int64_t h = i % s.raster_height - s.geometry.padding;
      if (h < 0 || h >= s.height) {
        zero(row_to, s.raster_row);
        continue;
      }
      zero(row_to, margin);
      std::memcpy(row_to + margin, x + (i / s.raster_height * s.height + h) * row,
                  static_cast<size_t>(row) * sizeof(T));
      zero(row_to + margin + row, margin);
    }
  });
}

template <class T>
TileWalk walk_of(const Sizes& s, const Tiles<T>& tiles) {
  const int64_t stride = s.geometry.stride, grad_row = s.out_width * s.filters;
  TileWalk walk{.rows_a_sample = s.out_height,
                .pixels = s.out_width,
                .rows_a_sum = s.rows_a_sum(),
                .a = {s.out_height * grad_row, grad_row, s.filters},
                .b = {s.raster_sample(), stride * s.raster_row, stride * s.channels},
                .sum_a = s.filter_values(),
                .sum_b = 1,
                .tap_row = s.raster_row,
                .tap = s.channels,
                .sum_tap_row = s.kernel_width};
  if (tiles.is_b_grad) {
    std::swap(walk.a, walk.b);
    std::swap(walk.sum_a, walk.sum_b);
  }
  return walk;
}

// All tiles over the samples in the raster. Rows are shared out too where tiles are few; every share has its
// own sums, [shares,K,k,k,C/groups].
template <class T>
void add_samples(const Sizes& s, const Tiles<T>& tiles, const T* raster, const T* grad, int64_t samples,
                 int64_t shares, double* sums) {
  const int64_t rows = samples * s.out_height, num_tiles = std::ssize(tiles.all);
  const TileWalk whole = walk_of(s, tiles);
  const int64_t row_bytes = (whole.a.row + whole.b.row) * static_cast<int64_t>(sizeof(T));
  const int64_t block = std::max<int64_t>(1, kBlockBytes / row_bytes / whole.rows_a_sum) * whole.rows_a_sum;
  const int64_t products = rows * s.out_width * s.filters * s.filter_values() / (num_tiles * shares);
  const int64_t grain = std::max<int64_t>(1, kProductsAThread / std::max<int64_t>(1, products));
  parallel_for(0, shares * num_tiles, grain, [&](int64_t begin, int64_t end) {
    TileWalk walk = whole;
    for (int64_t share = begin / num_tiles; share * num_tiles < end; ++share) {
      const int64_t first = std::max<int64_t>(0, begin - share * num_tiles);
      const int64_t last = std::min(num_tiles, end - share * num_tiles);
      const int64_t end_row = (share + 1) * rows / shares;
      double* own = sums + share * s.filters * s.filter_values();
      for (int64_t row = share * rows / shares; row < end_row; row += block) {
        walk.first_row = row;
        walk.last_row = std::min(row + block, end_row);
        for (int64_t i = first; i < last; ++i) {
          const Tile<T>& tile = tiles.all[static_cast<size_t>(i)];
          const T *x = raster + tile.x, *tile_grad = grad + tile.filter;
          tile.kernel(walk, tiles.is_b_grad ? x : tile_grad, tiles.is_b_grad ? tile_grad : x, own + tile.sum,
                      tile.columns);
        }
      }
    }
  });
}

template <class T>
void run(const at::Tensor& grad, const at::Tensor& x, const ConvGeometry& geometry,
         const at::Tensor& grad_weight) {
  const Sizes s(grad, x, geometry, grad_weight);
  const bool is_depthwise = geometry.groups == s.channels && s.filters == s.channels && s.channels > 1;
  const Tiles<T> tiles = is_depthwise ? depthwise_tiles<T>(s) : dense_tiles<T>(s);
  const int64_t samples =
      std::clamp<int64_t>(kRasterBytes / static_cast<int64_t>(sizeof(T)) / s.raster_sample(), 1, s.batch);
  const int64_t shares = std::clamp<int64_t>(kMostShares / std::ssize(tiles.all), 1,
                                             samples * s.out_height * s.out_width / kMostPixelsASum + 1);
  // Tiles read past their columns, of the last pixel too.
  const int64_t margin = kMostVectors * tile_kernels<T>().width;
  const at::Tensor raster = at::empty({samples * s.raster_sample() + margin}, x.options());
  raster.narrow(0, samples * s.raster_sample(), margin).zero_();
  const at::Tensor sums =
      at::zeros({shares, s.filters, s.kernel_height, s.kernel_width, s.channels / geometry.groups},
                x.options().dtype(at::kDouble));
  for (int64_t sample = 0; sample < s.batch; sample += samples) {
    const int64_t now = std::min(samples, s.batch - sample);
    fill_raster(s, x.const_data_ptr<T>() + sample * s.height * s.width * s.channels, now,
                raster.mutable_data_ptr<T>());
    add_samples(s, tiles, raster.const_data_ptr<T>(),
                grad.const_data_ptr<T>() + sample * s.out_height * s.out_width * s.filters, now, shares,
                sums.mutable_data_ptr<double>());
  }
  for (int64_t share = 1; share < shares; ++share) sums.select(0, 0).add_(sums.select(0, share));
  grad_weight.permute({0, 2, 3, 1}).copy_(sums.select(0, 0));
}

}  // namespace

void conv_weight_by_cpu(const at::Tensor& grad, const at::Tensor& x, const ConvGeometry& geometry,
                        const at::Tensor& grad_weight) {
  if (x.scalar_type() == at::kDouble) return run<double>(grad, x, geometry, grad_weight);
  run<float>(grad.to(at::kFloat), x.to(at::kFloat), geometry, grad_weight);
}

}  // namespace espalier::lanes
