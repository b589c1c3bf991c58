// What the kernels of all lanes share: plain pointers and sizes, no torch, so that nvcc alone builds them.
#pragma once

#include <cuda_runtime_api.h>

#include "espalier/lanes/pointers.h"
