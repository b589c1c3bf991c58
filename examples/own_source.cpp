// Data of one's own: stripes, of which a network is to tell the direction.
#include "espalier/data.h"
#include "examples/small_job.h"

using namespace espalier;

data::HostSplit stripes(int64_t samples, int64_t side) {
  data::NewField made = data::allocate_field(
      {.name = "image", .type = data::SampleType::kU8, .height = side, .width = side, .channels = 1},
      samples);
  data::HostSplit split{.fields = {made.field}, .labels = {}};
  std::byte* value = made.values.get();  // [N,H,W,C]
  for (int64_t sample = 0; sample < samples; ++sample) {
    split.labels.push_back(sample % 2);  // 0: along the rows, 1: along the columns
    for (int64_t pixel = 0; pixel < side * side; ++pixel) {
      const int64_t place = sample % 2 == 0 ? pixel / side : pixel % side;
      const bool is_light = (place + sample / 2) / 2 % 2 == 0;
      *value++ = is_light ? std::byte{200} : std::byte{static_cast<unsigned char>(20 + sample * pixel % 60)};
    }
  }
  return split;
}

int main() {
  // By its name it is also a kind of --data, in a program that runs jobs: --data stripes:wide.
  data::sources().add({.name = "stripes",
                       .places = {"wide", "narrow"},
                       .load = [](const std::string& place, const data::SourceConfig&, const Progress&) {
                         const int64_t side = place == "wide" ? 16 : 8;
                         data::HostDataset dataset{.class_names = {"rows", "columns"},
                                                   .train = stripes(600, side),
                                                   .test = stripes(200, side)};
                         dataset.statistics = {data::compute_statistics(dataset.train.fields[0], 600)};
                         return dataset;
                       }});
  train::PopulationConfig options = small_job();
  options.source.data = "stripes:wide";
  options.epochs = 3;
  train::PopulationTrainer population(options);
  return train_all(population, *train::controller_for(options)) > 0.9 ? 0 : 1;
}
