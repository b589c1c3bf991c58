// The options of a multi-stream network's trainer: which network, on which streams, and how it is trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/machine/device_name.h"
#include "espalier/linet/rules.h"
#include "espalier/train/job_config.h"
#include "espalier/train/step/learning_rate.h"

namespace espalier::train {

enum class OptimizerKind : uint8_t { kAdamW, kSgd };

// Whose layers the stream-balance loss is averaged over. kAuto: layer4, or all of them by our rules.
enum class BalanceLayer : uint8_t { kAuto, kAll, kConv1, kLayer1, kLayer2, kLayer3, kLayer4 };

struct LinetConfig : JobConfig {
  LinetConfig() {
    source.data = "synthetic:rgbd";
    batch = 64;
    epochs = 5;
  }

  std::optional<DeviceName> device;   // none: a GPU where there is one, else the CPU
  std::string model = "li_resnet18";  // one of linet_presets()
  linet::LinetRules rules = linet::LinetRules::kOriginal;
  std::vector<std::string> streams;  // fields of the data, one per stream; empty: all of them
  double width = 0;                  // times the preset's channels; 0: 1 on a GPU, 0.25 on the CPU
  std::string weights;               // a file to begin with; empty: drawn
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  double learning_rate = 2e-3;  // its peak
  std::vector<double> rates;    // what it is multiplied with for every stream, then for the integrated path
  RateCurve schedule = RateCurve::kLinear;
  double warm_up = 0.2;  // share of the run over which it rises
  double momentum = 0.9;
  double weight_decay = 0.01;
  double label_smoothing = 0;
  double clip = 0;  // largest gradient norm of the network; 0: any
  double dropout = 0;
  double modality_dropout = 0;
  int64_t modality_start = 0;
  double modality_ramp = 5;
  double balance = 0;  // weight of the loss that makes streams contribute alike
  BalanceLayer balance_layer = BalanceLayer::kAuto;
  int64_t patience = 0;
  int64_t stream_patience = 0;
  bool sync_norm = false;  // several ranks: batch statistics are of the whole batch, not of each rank's part
  bool monitor = true;     // a head is trained on every stream, to see what it knows by itself
};

}  // namespace espalier::train
