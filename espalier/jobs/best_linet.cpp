#include "espalier/jobs/best_linet.h"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/run/archive.h"

namespace espalier::jobs {

BestLinet::BestLinet(std::string path, train::LinetTrainer& trainer, Metadata metadata)
    : path_(std::move(path)), trainer_(trainer), metadata_(std::move(metadata)) {}

linet::NamedTensors BestLinet::live() const {
  linet::NamedTensors tensors = linet::stacked_tensors(trainer_.net());
  if (trainer_.monitor())
    for (const lanes::NamedParameter& named : trainer_.monitor()->parameters())
      tensors.emplace_back(named.name, named.parameter->storage());
  return tensors;
}

void BestLinet::take(int64_t epoch, double validation_accuracy) {
  const c10::NoGradGuard no_grad;
  epoch_ = epoch;
  validation_accuracy_ = validation_accuracy;
  kept_.clear();
  for (const auto& [name, tensor] : live())
    kept_.emplace_back(name, tensor.detach().to(tensor.options().device(at::kCPU), /*non_blocking=*/false,
                                                /*copy=*/true));
}

void BestLinet::write() const {
  Metadata metadata = metadata_;
  metadata["epoch"] = std::to_string(epoch_);
  if (!std::isnan(validation_accuracy_))
    metadata["validation_accuracy"] = std::to_string(validation_accuracy_);
  linet::write_checkpoint(path_, trainer_.net().shape(), kept_, metadata);
}

void BestLinet::put_back() {
  const c10::NoGradGuard no_grad;
  const linet::NamedTensors tensors = live();
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].second.detach().copy_(kept_.at(i).second);
  for (const lanes::NamedParameter& named : trainer_.net().parameters()) named.parameter->refresh();
  if (!trainer_.monitor()) return;
  for (const lanes::NamedParameter& named : trainer_.monitor()->parameters()) named.parameter->refresh();
}

void BestLinet::visit_state(run::StateArchive& archive) {
  if (archive.is_loading() && archive.has_value("best_epoch"))
    fail(
        "an older program wrote this checkpoint, without its best network: go on with that program, or begin "
        "anew with --restart fresh");
  archive.part("best_network", [&] {
    archive.value("epoch", epoch_);
    archive.value("validation_accuracy", validation_accuracy_);
    if (archive.is_loading()) {
      kept_.clear();
      if (epoch_ > 0)
        for (const auto& [name, tensor] : live())
          kept_.emplace_back(name, at::empty(tensor.sizes(), tensor.options().device(at::kCPU)));
    }
    for (const auto& [name, tensor] : kept_) archive.tensor(name, tensor);
  });
}

}  // namespace espalier::jobs
