// `espalier train linet`: which network, on which streams, and how it is trained.
#pragma once

#include <cstdint>
#include <string>

#include "espalier/train/job_options.h"

namespace espalier::train {

struct LinetOptions : JobOptions {
  LinetOptions() {
    source.data = "synthetic:rgbd";
    batch = 64;
    epochs = 5;
  }

  std::string device = "auto";
  std::string model = "li_resnet18";
  std::string streams;
  double width = 0;
  std::string amp = "auto";
  std::string weights;
  std::string optimizer = "adamw";
  double learning_rate = 2e-3;
  std::string rates;
  std::string schedule = "one-cycle";
  double warm_up = 0.2;
  double momentum = 0.9;
  double weight_decay = 0.01;
  double label_smoothing = 0;
  double clip = 0;
  double dropout = 0;
  double modality_dropout = 0;
  double modality_ramp = 5;
  double balance = 0;
  std::string balance_layer = "all";
  int64_t patience = 0;
  int64_t stream_patience = 0;
  bool monitor = true;

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_device(v, device);
    JobOptions::visit(v);
    v({.name = "model",
       .help = "the residual network that every stream is",
       .choices = {"li_resnet18", "li_resnet34", "li_resnet50", "li_resnet101", "li_resnet152"}},
      model);
    v({.name = "streams",
       .help = "fields of the data, one a stream, such as rgb,depth; without it all of them",
       .placeholder = "NAMES"},
      streams);
    v({.name = "width",
       .help = "what the widths 64 to 512 are multiplied with; 0: 1 on a GPU, 0.25 on the CPU",
       .low = 0,
       .high = 16},
      width);
    v({.name = "amp",
       .help = "what is computed in; weights stay fp32; auto: bfloat16 on a GPU, off on the CPU",
       .choices = {"auto", "off", "bfloat16", "float16"}},
      amp);
    v({.name = "weights",
       .help = "begin with these, a file that `espalier linet export` or PyTorch wrote",
       .placeholder = "FILE"},
      weights);
    v({.name = "optimizer", .help = "how weights move", .choices = {"adamw", "sgd"}}, optimizer);
    v({.name = "learning-rate", .help = "its peak", .low = 0, .high = 100}, learning_rate);
    v({.name = "rates",
       .help = "what it is multiplied with for every stream, then for the integrated path: 1,0.5,0.5,1",
       .placeholder = "FACTORS"},
      rates);
    v({.name = "schedule",
       .help = "how it falls after the warm-up: in a line (one-cycle), along a cosine, or not",
       .choices = {"one-cycle", "cosine", "constant"}},
      schedule);
    v({.name = "warm-up", .help = "share of the run over which it rises", .low = 0, .high = 0.99}, warm_up);
    v({.name = "momentum", .help = "of SGD, Nesterov's; 0: none", .low = 0, .high = 1}, momentum);
    v({.name = "weight-decay", .help = "of either optimiser", .low = 0, .high = 1}, weight_decay);
    v({.name = "label-smoothing", .help = "weight of a label spread over all classes", .low = 0, .high = 1},
      label_smoothing);
    v({.name = "clip", .help = "largest gradient norm of the network; 0: any", .low = 0, .high = 1e9}, clip);
    v({.name = "dropout", .help = "share of the pooled features left out", .low = 0, .high = 0.99}, dropout);
    v({.name = "modality-dropout",
       .help = "how likely a sample's stream is blanked; never all of a sample's",
       .low = 0,
       .high = 1},
      modality_dropout);
    v({.name = "modality-ramp", .help = "epochs over which that rises from 0", .low = 0, .high = 1e6},
      modality_ramp);
    v({.name = "balance",
       .help = "weight of the loss that makes streams contribute alike; 0: none",
       .low = 0,
       .high = 1e6},
      balance);
    v({.name = "balance-layer",
       .help = "whose layers that loss is averaged over",
       .choices = {"all", "conv1", "layer1", "layer2", "layer3", "layer4"}},
      balance_layer);
    v({.name = "patience",
       .help = "epochs without a better validation accuracy before the run ends; 0: never",
       .low = 0,
       .high = 1e6},
      patience);
    v({.name = "stream-patience",
       .help = "epochs without a better one of its own head before a stream is frozen; 0: never",
       .low = 0,
       .high = 1e6},
      stream_patience);
    v({.name = "monitor", .help = "train a head on every stream, to see what it knows by itself"}, monitor);
  }
};

}  // namespace espalier::train
