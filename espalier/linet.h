// Multi-stream residual networks.
#pragma once

#include "espalier/linet/file.h"
#include "espalier/linet/network.h"
#include "espalier/linet/shape.h"
