// CIFAR-10's sizes, random bytes: what benchmarks gather from where no data is given.
#pragma once

#include <cstdint>

#include "espalier/data/sources/host_dataset.h"

namespace espalier::bench {

// side: rows and columns of an image; count: images to train on.
data::HostDataset random_images(int64_t side = 32, int64_t count = 50000);

}  // namespace espalier::bench
