// Data on a device: sources, the resident dataset, plans, batches.
#pragma once

#include "espalier/data/cache.h"
#include "espalier/data/gather.h"
#include "espalier/data/iterator.h"
#include "espalier/data/plan.h"
#include "espalier/data/resident.h"
#include "espalier/data/sources/source.h"
