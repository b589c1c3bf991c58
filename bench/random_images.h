// CIFAR-10's sizes, random bytes: what benchmarks gather from where no data is given.
#pragma once

#include "espalier/data/sources/host_dataset.h"

namespace espalier::bench {

data::HostDataset random_images();

}  // namespace espalier::bench
