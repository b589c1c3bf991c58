// The directory of a run, and its checkpoints.
#pragma once

#include "espalier/run/archive.h"
#include "espalier/run/config.h"
#include "espalier/run/directory.h"
