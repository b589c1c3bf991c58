// A batch as a person looks at it: the first images of the first lane, side by side.
#pragma once

#include <vector>

#include "espalier/data/delivery.h"
#include "espalier/watch/tensorboard/png.h"

namespace espalier::jobs {

// As they were before they were normalised, augmented as they are; one picture per image buffer. Reads from
// the device. Fields of neither 1 nor 3 channels show their first. Values beyond 8 bits are brought into
// them.
std::vector<watch::NamedPicture> batch_pictures(const data::BatchDelivery& batch);

}  // namespace espalier::jobs
