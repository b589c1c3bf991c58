// Marks functions that the CPU and a CUDA kernel share, so that both compute the same bits from one text.
#pragma once

#ifdef __CUDACC__
#define ESPALIER_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define ESPALIER_HOST_DEVICE inline
#endif
