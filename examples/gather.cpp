// A dataset that is loaded once and served to eight lanes, each in its own order.
#include <torch/torch.h>

#include <cstdio>

#include "espalier/data.h"

using namespace espalier;

int main() {
  data::SourceConfig source;
  source.synthetic_train = 2000;
  source.synthetic_test = 100;
  const auto dataset = data::DatasetCache::instance().ensure(source, {}, parse_device("cpu"));

  const data::PlanOptions plan{.kind = data::PlanKind::kOwn,
                               .n_envs = 8,
                               .batch_size_per_env = 64,
                               .env_devices = std::vector<std::string>(8, "cpu"),
                               .seed = 42};
  data::GatherIterator iterator(data::IteratorOptions::training(plan, at::kFloat), {dataset},
                                data::Split::kTrain);
  iterator.begin_epoch(0);
  int64_t batches = 0;
  double sum = 0;
  while (auto batch = iterator.next_stacked()) {
    const data::StackedBatch& all = batch->front();  // one a device
    sum += all.fields[0].mean().item<double>();      // [8,64,3,32,32], every lane channels-last
    ++batches;
  }
  std::printf("%ld batches for 8 lanes of 64, mean value %.4f\n", static_cast<long>(batches),
              sum / static_cast<double>(batches));
  return batches == iterator.length() ? 0 : 1;
}
