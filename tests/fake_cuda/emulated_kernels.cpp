// Our CUDA kernels as plain C++: the same sources, on the grid.cuh of this folder.

#include "validate/cuda/attention_tiles.cu"  // NOLINT(bugprone-suspicious-include)
#include "validate/cuda/compression.cu"      // NOLINT(bugprone-suspicious-include)
#include "validate/cuda/elementwise.cu"      // NOLINT(bugprone-suspicious-include)
#include "validate/cuda/layers.cu"           // NOLINT(bugprone-suspicious-include)
#include "validate/cuda/mixture.cu"          // NOLINT(bugprone-suspicious-include)
#include "validate/cuda/normalization.cu"    // NOLINT(bugprone-suspicious-include)
