// Flags of a multi-stream network.
#pragma once

#include "espalier/cli/flags/training.h"
#include "espalier/core/options.h"
#include "espalier/linet/shape.h"
#include "espalier/train/linet/config.h"

namespace espalier::cli {

inline constexpr std::string_view kNetworkFlags = "Network";

// Numbers of at least 0 with commas between.
TextMember factors_member(std::vector<double>& member, std::string flag);

template <class Visitor>
void visit_linet(Visitor&& visitor, train::LinetConfig& linet) {
  auto v = in_group(visitor, kNetworkFlags);
  v({.name = "model", .help = "the residual network that every stream is", .choices = linet::linet_presets()},
    linet.model);
  v({.name = "linet-rules",
     .help = "whose definitions hold for --width, --modality-dropout, --balance and --stream-patience: those "
             "of the network that LINet comes from, or ours (docs/linet.md)"},
    one_of(linet.rules,
           {{"original", linet::LinetRules::kOriginal}, {"espalier", linet::LinetRules::kEspalier}}));
  v({.name = "streams",
     .help = "fields of the data, one per stream, such as rgb,depth; without this flag all fields",
     .placeholder = "NAMES"},
    names_in(linet.streams, "--streams"));
  v({.name = "width",
     .help = "factor for the widths 64 to 512; 0: 1 on a GPU, 0.25 on the CPU",
     .low = 0,
     .high = 16},
    linet.width);
  v({.name = "weights",
     .help = "first values of the weights: a file that `espalier linet export` or PyTorch wrote",
     .placeholder = "FILE"},
    linet.weights);
  v({.name = "optimizer", .help = "the optimiser: adamw or sgd"},
    one_of(linet.optimizer, {{"adamw", train::OptimizerKind::kAdamW}, {"sgd", train::OptimizerKind::kSgd}}));
  visit_learning_rate(visitor, kNetworkFlags, linet.learning_rate);
  v({.name = "rates",
     .help = "factors of the learning rate: one for each stream, then one for the integrated path, such as "
             "1,0.5,0.5,1",
     .placeholder = "FACTORS"},
    factors_member(linet.rates, "--rates"));
  visit_schedule(visitor, kNetworkFlags, linet.schedule, linet.warm_up);
  visit_gradients(visitor, kNetworkFlags, linet, "largest gradient norm of the network; 0: any");
  v({.name = "dropout",
     .help = "share of the pooled features that are left out while training",
     .low = 0,
     .high = 0.99},
    linet.dropout);
  v({.name = "modality-dropout",
     .help = "how likely a sample loses one of its streams; by the rules espalier: how likely each of its "
             "streams is blanked, but never all",
     .low = 0,
     .high = 1},
    linet.modality_dropout);
  v({.name = "modality-start",
     .help = "epochs before the first with modality dropout; not by the rules espalier",
     .low = 0,
     .high = 1e6},
    linet.modality_start);
  v({.name = "modality-ramp",
     .help = "epochs over which modality dropout rises, epoch by epoch; by the rules espalier step by step",
     .low = 0,
     .high = 1e6},
    linet.modality_ramp);
  v({.name = "balance",
     .help = "weight of the loss that makes streams contribute alike; 0: none",
     .low = 0,
     .high = 1e6},
    linet.balance);
  v({.name = "balance-layer",
     .help =
         "layers that the loss of --balance is averaged over; auto: layer4, or all by the rules espalier"},
    one_of(linet.balance_layer, {{"auto", train::BalanceLayer::kAuto},
                                 {"all", train::BalanceLayer::kAll},
                                 {"conv1", train::BalanceLayer::kConv1},
                                 {"layer1", train::BalanceLayer::kLayer1},
                                 {"layer2", train::BalanceLayer::kLayer2},
                                 {"layer3", train::BalanceLayer::kLayer3},
                                 {"layer4", train::BalanceLayer::kLayer4}}));
  v({.name = "patience",
     .help = "epochs without a better validation accuracy before the run ends; 0: never",
     .low = 0,
     .high = 1e6},
    linet.patience);
  v({.name = "stream-patience",
     .help = "epochs that a stream may go without a better accuracy of its own head; after one more it is "
             "frozen with its best weights, by the rules espalier after this many as it is; 0: never",
     .low = 0,
     .high = 1e6},
    linet.stream_patience);
  visit_sync_norm(visitor, kNetworkFlags, linet.sync_norm,
                  "with several ranks, take batch statistics (those of norms and of --balance) over the "
                  "whole batch instead of each rank's part");
  v({.name = "monitor", .help = "train a head on every stream, to see what it knows by itself"},
    linet.monitor);
}

}  // namespace espalier::cli
