#pragma once
// How much of its roofline a kernel reaches on a GPU, as measured. Products and attention: by their sizes. The others:
// which share of the memory's bandwidth their sort reaches.
//   product:    max(max(2 m n k / peak, bytes / bandwidth) + floor) / share(m, n, k), at least 2 m n k / peak
//   batched:    the same by (m, n, k) of each, if there is such a table
//   unaligned:  max(2 m n k / (share x peak), bytes / bandwidth) + floor
//   convolution: (max(flops / peak, bytes / bandwidth) + floor) / share
//   attention:  (flops / peak + floor) / share(sequence, heads)
//   others:     max(flops / peak, bytes / (share x bandwidth)) + floor

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "sim/core/kernels/gpu_kernel.h"
#include "sim/core/scaling.h"
#include "sim/core/units.h"
#include "sim/ops/size_grid.h"

namespace plimsoll {

/// The largest share that a figure may say: what the level-2 cache holds is read faster than from memory, on an L40S
/// up to three times.
inline constexpr double largest_share = 3;

/// Of a product the sizes follow from its flops and how many numbers its two operands and its result have. They say
/// nothing of how these lie in memory: views and transposed operands are read as well. `other` where they contradict
/// each other, or the trace does not have them.
GpuKernel gpu_kernel(const Graph&, const Op&);

/// How far kernels of a sort are from what figures say that have not seen them: measured / predicted of the tenth that
/// is shortest, and of the tenth that is longest.
struct Spread {
  double low = 1, high = 1;

  friend bool operator==(const Spread&, const Spread&) = default;
};

/// Shares are of the roofline of the device that they are applied to.
struct Efficiency final : KernelTimes {
  std::optional<KernelTime> time(const Graph&, const Op&, const Device&) const override;
  std::optional<KernelTime> time(const StageKernel&, const Source&, const Device&) const override;
  Seconds moving(double bytes, const Device&) const override;
  /// Below the least measured size it takes the time of that, above the largest the bandwidth of that.
  std::optional<Seconds> collective(CollectiveKind, std::uint32_t ranks, double bytes) const override;

  std::map<std::string, FlopsPerSecond> peak;      ///< of the GPU that was measured, by dtype: what shares are of
  std::optional<BytesPerSecond> memory_bandwidth;  ///< likewise
  Seconds kernel_floor;                            ///< the shortest kernel
  /// How much longer kernels take under the load of a whole iteration, where clocks fall: of all times by a figure.
  double sustained = 1;
  std::map<std::string, SizeGrid, std::less<>> product;  ///< by dtype: logarithm of the share by m, n, k
  /// By dtype and head size: logarithm of the share by sequence and heads of all samples, of causal forwards.
  std::map<std::string, std::map<double, SizeGrid>, std::less<>> attention;
  double attention_backward = 1;                                 ///< share of the backward, of the forward's
  double elementwise = 1, norm = 1, softmax = 1, optimizer = 1;  ///< of the memory's bandwidth
  double batched_product = 1;                                    ///< of the peak
  /// By dtype, as `product`: m, n and k are those of each product of the batch.
  std::map<std::string, SizeGrid, std::less<>> batched_product_by_size;
  using ByDtype = std::map<std::string, double, std::less<>>;
  ByDtype product_without_table;                                                 ///< of the roofline
  ByDtype unaligned_product;                                                     ///< of the peak
  ByDtype convolution, convolution_input_gradient, convolution_weight_gradient;  ///< of the roofline
  /// Where pictures lie pixel by pixel; of a dtype without a share here, those above.
  ByDtype channels_last_convolution, channels_last_convolution_input_gradient,
      channels_last_convolution_weight_gradient;
  std::map<std::string, Spread, std::less<>>
      spread;  ///< by sort_name, and of `collectives`; what was not found out is absent
  std::map<CollectiveKind, SizeGrid> collectives;  ///< logarithm of seconds by ranks of a node and bytes
};

/// The time of a kernel with so much work. Nothing where the device has no peak of the dtype, no bandwidth, or the
/// kernel is of no measured sort: then the roofline holds.
std::optional<KernelTime> kernel_time(const Efficiency&, const Device&, const GpuKernel&, const KernelWork&);

/// The sort whose figure a kernel takes, as files of efficiencies name it.
std::string_view sort_name(const Efficiency&, const GpuKernel&);

/// Of a product of a dtype with a table: those without tensor cores are a sort of their own.
std::string_view product_sort(std::string_view dtype, bool is_batched);

/// What a product needs at least, without efficiency: the logarithm's reference of tables.
std::optional<Seconds> product_roofline(const Device&, const GpuKernel&);

}  // namespace plimsoll
