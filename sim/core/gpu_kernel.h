#pragma once
// What an op runs on a GPU, as far as its speed there depends on it: which sort of kernel, and of which sizes.

#include <cstdint>
#include <string>

#include "sim/core/graph.h"

namespace plimsoll {

/// Kernels whose speeds are measured apart. `other`: none of these, such as convolutions.
enum class KernelKind : std::uint8_t {
  elementwise,
  norm,
  softmax,
  product,
  batched_product,
  attention,  ///< fused: scores are not kept
  attention_backward,
  optimizer,
  other
};

struct GpuKernel {
  KernelKind kind = KernelKind::other;
  std::string dtype;                              ///< what products compute in, as platforms write it: `bf16`
  double batch = 1, m = 0, n = 0, k = 0;          ///< of products: y(m, n) = x(m, k) w(k, n), `batch` of them
  double sequence = 0, heads = 0, head_size = 0;  ///< of attention; heads of all samples

  friend bool operator==(const GpuKernel&, const GpuKernel&) = default;
};

/// Of a product the sizes follow from its flops and how many numbers its two operands and its result have. They say
/// nothing of how these lie in memory: views and transposed operands are read as well. `other` where they contradict
/// each other, or the trace does not have them.
GpuKernel gpu_kernel(const Graph&, const Op&);

}  // namespace plimsoll
