#include "espalier/train/population/format_comparison.h"

#include "espalier/tensor/pinned.h"
#include "espalier/train/population/setup.h"

namespace espalier::train {
namespace {

// With its training split in channels-last, in the same kind of memory.
std::shared_ptr<const data::ResidentDataset> in_channels_last(data::ResidentDataset dataset) {
  dataset.format = MemoryFormat::kChannelsLast;
  for (data::ResidentField& field : dataset.train.fields) {
    const at::Tensor values =
        empty_images(field.values.sizes(), MemoryFormat::kChannelsLast, field.values.options());
    values.copy_(field.values);
    field.values = dataset.residency == data::Residency::kHost ? pin_in_place(values) : values;
  }
  return std::make_shared<const data::ResidentDataset>(std::move(dataset));
}

}  // namespace

FormatComparison compare_formats(Shard& trainer, const MemoryPlan& plan) {
  const data::ResidentDataset& dataset = *trainer.setup().dataset;
  FormatComparison measured{.step_ms = trainer.step().measure_ms()};
  ranks::World& world = *trainer.setup().batch_world;
  // Where the ranks share a step, it is made by all of them or by none.
  const bool has_room = plan.budget_bytes == 0 || 2 * plan.total_bytes() <= plan.budget_bytes;
  if (world.sum(has_room ? 1 : 0) < world.size()) return measured;
  PopulationConfig other = trainer.options();
  other.resident.memory_format = MemoryFormat::kChannelsLast;
  const size_t field = chosen_field(other, specs_of(dataset.train));
  const auto converted = in_channels_last(dataset);
  const at::ScalarType compute = precision_type(other.precision, dataset.device);
  const data::GatherIterator train(training_plan(other, trainer.setup().device, compute), {converted},
                                   data::Split::kTrain);
  grow::HostFrame frame = trainer.setup().frame;
  frame.memory_format = converted->format;
  grow::NetworkStack population(trainer.setup().host, frame, {}, dataset.device, compute);
  TrainStep twin(population, train.gather_call(0), field,
                 step_options(other, train.length() / world.size(), *converted, world));
  measured.channels_last_ms = twin.measure_ms();
  return measured;
}

}  // namespace espalier::train
