// Multi-stream trainers for tests: a thin network on three fields of small images, a few dozen samples.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "espalier/tensor/device.h"
#include "espalier/train/linet/trainer.h"
#include "tests/data/small_data.h"

namespace espalier::train::testing {

inline LinetConfig small_linet_options() {
  LinetConfig options;
  options.device = parse_device("cpu");
  options.width = 0.0625;
  options.batch = 10;
  options.epochs = 4;
  options.learning_rate = 1e-2;
  options.crop_pad = 1;
  options.seed = 5;
  return options;
}

inline std::shared_ptr<const data::ResidentDataset> small_streams(c10::Device device = c10::kCPU) {
  data::FieldSpec rgb = data::testing::image_spec(32, 32), depth = rgb, orth = rgb;
  rgb.name = "rgb";
  depth.name = "depth";
  depth.channels = 1;
  depth.type = data::SampleType::kU16;
  orth.name = "orth";
  orth.channels = 1;
  return data::testing::resident(data::testing::small_dataset({rgb, depth, orth}, 60, 20), {.validation = 20},
                                 device);
}

inline std::unique_ptr<LinetTrainer> small_linet(const LinetConfig& options) {
  const DeviceName device = choose_device(options.device);
  return std::make_unique<LinetTrainer>(options, small_streams(torch_device(device)), device);
}

inline std::map<std::string, at::Tensor> copy_of(linet::Linet& net) {
  std::map<std::string, at::Tensor> copies;
  for (const linet::StreamTensor& tensor : net.stream_tensors())
    copies[tensor.name] = tensor.value().detach().to(at::kCPU).clone();
  return copies;
}

}  // namespace espalier::train::testing
