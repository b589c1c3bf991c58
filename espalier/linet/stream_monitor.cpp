#include "espalier/linet/stream_monitor.h"

#include "espalier/lanes/init.h"

namespace espalier::linet {

StreamMonitor::StreamMonitor(const LinetShape& shape, const at::TensorOptions& options)
    : streams_(shape.num_streams()),
      heads_({.lanes = shape.num_streams(),
              .in_features = shape.num_features(),
              .out_features = shape.num_classes},
             options) {
  lanes::init_kaiming_uniform_(heads_.weight.storage(), {shape.seed, "monitor.weight"});
  lanes::init_uniform_(heads_.bias.storage(), lanes::kaiming_bound(heads_.weight.storage()),
                       {shape.seed, "monitor.bias"});
  for (const lanes::NamedParameter& named : parameters()) named.parameter->refresh();
}

at::Tensor StreamMonitor::forward(const at::Tensor& features) const {
  return heads_.forward(features.narrow(0, 0, streams_).detach());
}

std::vector<lanes::NamedParameter> StreamMonitor::parameters() {
  std::vector<lanes::NamedParameter> named;
  lanes::append_parameters(named, "monitor.", heads_.parameters());
  return named;
}

}  // namespace espalier::linet
