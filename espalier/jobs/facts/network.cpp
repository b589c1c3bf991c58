#include "espalier/jobs/facts/network.h"

#include <nlohmann/json.hpp>

#include "espalier/core/machine/program.h"
#include "espalier/train/population/setup.h"

namespace espalier::jobs {

grow::NetworkDescription described_network(const train::PopulationConfig& options,
                                           const data::ResidentDataset& dataset, const std::string& run) {
  const data::ResidentField& field =
      dataset.train.fields[train::chosen_field(options, train::specs_of(dataset.train))];
  grow::NetworkDescription network{.host = options.host,
                                   .field = field.spec.name,
                                   .channels = field.spec.channels,
                                   .height = field.spec.height,
                                   .width = field.spec.width,
                                   .full_scale = field.spec.type == data::SampleType::kU8 ? 255 : 65535,
                                   .mean = field.statistics.mean,
                                   .deviation = field.statistics.stddev,
                                   .classes = dataset.class_names};
  for (double& each : network.deviation)
    if (each <= 0) each = 1;  // a constant channel is shifted only (data/resident.cpp)
  const ProgramFacts& program = program_facts();
  network.origin = {.run = run, .data = dataset.origin, .version = program.version, .commit = program.commit};
  return network;
}

void add_network_facts(nlohmann::ordered_json& environment, const grow::NetworkDescription& network,
                       const grow::NetworkStack& population) {
  environment[kNetworkFact] = to_json(network);
  std::vector<std::string> slots;
  for (const grow::SlotSpec& slot : population.slots()) slots.push_back(slot.name);
  environment[kSlotsFact] = slots;
  environment[kBlueprintsFact] = population.blueprints().names();
}

}  // namespace espalier::jobs
