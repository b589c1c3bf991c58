#include "espalier/jobs/facts/batch_picture.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

namespace espalier::jobs {
namespace {

constexpr int64_t kColumns = 4;
constexpr int64_t kMostImages = 16;

}  // namespace

std::vector<watch::NamedPicture> batch_pictures(const data::BatchDelivery& batch) {
  std::vector<watch::NamedPicture> pictures;
  for (size_t i = 0; i < batch.images().size(); ++i) {
    const at::Tensor first = batch.images()[i].select(0, 0);  // [B,C,H,W]
    const int64_t count = std::min(first.size(0), kMostImages);
    const int64_t channels = first.size(1) == 3 ? 3 : 1;
    const at::Tensor affine = batch.affine()[i].to(at::kCPU).view({2, -1, 1, 1});
    at::Tensor values = first.narrow(0, 0, count).to(at::kCPU, at::kFloat);
    values = (values - affine[1]) / affine[0];
    const float largest = values.numel() > 0 ? values.max().item<float>() : 0;
    if (largest > 255) values = values * (255 / largest);
    const at::Tensor pixels = values.narrow(1, 0, channels).round().clamp(0, 255).to(at::kByte);
    const int64_t height = first.size(2), width = first.size(3);
    const int64_t rows = (count + kColumns - 1) / kColumns;
    const at::Tensor sheet = at::zeros({rows * height, kColumns * width, channels}, at::kByte);
    for (int64_t image = 0; image < count; ++image)
      sheet.narrow(0, image / kColumns * height, height)
          .narrow(1, image % kColumns * width, width)
          .copy_(pixels[image].permute({1, 2, 0}));
    watch::NamedPicture& picture =
        pictures.emplace_back(watch::NamedPicture{.name = fmt::format("batch/{}", i),
                                                  .width = kColumns * width,
                                                  .height = rows * height,
                                                  .channels = channels});
    const auto* bytes = sheet.const_data_ptr<uint8_t>();
    picture.bytes.assign(bytes, bytes + sheet.numel());
  }
  return pictures;
}

}  // namespace espalier::jobs
