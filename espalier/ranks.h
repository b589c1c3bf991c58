// Several processes on one job.
#pragma once

#include "espalier/ranks/world.h"
