#pragma once
// Kernels of a GPU by what their time depends on: their sort, sizes and work. Of which a stage of a chain is made, so
// that it can be timed as its ops would be.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

/// Kernels whose speeds are measured apart. `other`: none of these.
enum class KernelKind : std::uint8_t {
  elementwise,
  norm,
  softmax,
  product,
  batched_product,
  attention,  ///< fused: scores are not kept
  attention_backward,
  optimizer,
  convolution,
  convolution_input_gradient,
  convolution_weight_gradient,
  convolution_backward,  ///< both gradients, one after the other
  other
};

struct GpuKernel {
  KernelKind kind = KernelKind::other;
  std::string dtype;                              ///< what products compute in, as platforms write it: `bf16`
  double batch = 1, m = 0, n = 0, k = 0;          ///< of products: y(m, n) = x(m, k) w(k, n), `batch` of them
  bool is_aligned = true;                         ///< of products: rows of every matrix begin at multiples of 16 bytes
  double sequence = 0, heads = 0, head_size = 0;  ///< of attention; heads of all samples
  bool is_channels_last = false;                  ///< of convolutions: pictures lie pixel by pixel

  friend bool operator==(const GpuKernel&, const GpuKernel&) = default;
};

/// Flops and bytes moved, those `traffic` times, by so many launches.
struct KernelWork {
  Flops flops;
  Bytes bytes;
  double traffic = 1, launches = 1;

  friend bool operator==(const KernelWork&, const KernelWork&) = default;
};

/// One op of a stage's forward or backward.
struct StageKernel {
  GpuKernel kernel;
  KernelWork work;
  double count = 1;        ///< how many there are alike, or which share of one is left
  bool of_weight = false;  ///< of a backward: it makes nothing but gradients of parameters

  friend bool operator==(const StageKernel&, const StageKernel&) = default;
};

/// A list that stages alike, and the ops made of them, have together.
class StageKernels {
 public:
  StageKernels() = default;
  explicit StageKernels(std::vector<StageKernel> list)
      : list_(list.empty() ? nullptr : std::make_shared<const std::vector<StageKernel>>(std::move(list))) {}

  bool empty() const { return !list_; }
  auto begin() const { return empty() ? Iterator{} : list_->begin(); }
  auto end() const { return empty() ? Iterator{} : list_->end(); }

  friend bool operator==(const StageKernels&, const StageKernels&);

 private:
  using Iterator = std::vector<StageKernel>::const_iterator;
  std::shared_ptr<const std::vector<StageKernel>> list_;
};

/// All of them, so many times.
StageKernels times(double share, const StageKernels&);

}  // namespace plimsoll
