#include "espalier/grow/host/registry.h"

#include "espalier/grow/export/built_in.h"
#include "espalier/grow/host/cnn.h"

namespace espalier::grow {
namespace {

HostKind preset(const char* name, const CnnHostOptions& options) {
  return {
      .name = name, .make = cnn_host(options), .cnn = options, .python = [options](const HostFrame& frame) {
        return python_cnn(options.in(frame));
      }};
}

}  // namespace

Registry<HostKind>& hosts() {
  static Registry<HostKind> hosts(
      "host", {preset("tiny", {.n_blocks = 2, .base_channels = 8}),
               preset("tiny_wide", {.n_blocks = 2, .base_channels = 16}),
               preset("cifar_baseline", {.n_blocks = 3, .base_channels = 8}),
               preset("cifar_scale", {.n_blocks = 5, .base_channels = 8, .pool_layers = 5}),
               preset("cifar_wide", {.n_blocks = 3, .base_channels = 32}),
               preset("cifar_deep", {.n_blocks = 5, .base_channels = 32, .pool_layers = 3})});
  return hosts;
}

}  // namespace espalier::grow
