#pragma once
// How much of its roofline a kernel reaches on a GPU, as measured. Products and attention: by their sizes. The others:
// which share of the memory's bandwidth their sort reaches.
//   product:    max(max(2 m n k / peak, bytes / bandwidth) + floor) / share(m, n, k), at least 2 m n k / peak
//   attention:  (flops / peak + floor) / share(sequence, heads)
//   others:     max(flops / peak, bytes / (share x bandwidth)) + floor

#include <map>
#include <optional>
#include <string>

#include "sim/core/gpu_kernel.h"
#include "sim/core/size_grid.h"
#include "sim/core/units.h"

namespace plimsoll {

struct Device;

/// Shares are of the roofline of the device that they are applied to.
struct Efficiency {
  std::string name, model;                               ///< of the file; the GPU that was measured
  Seconds kernel_floor;                                  ///< the shortest kernel
  std::map<std::string, SizeGrid, std::less<>> product;  ///< by dtype: logarithm of the share by m, n, k
  /// By dtype and head size: logarithm of the share by sequence and heads of all samples, of causal forwards.
  std::map<std::string, std::map<double, SizeGrid>, std::less<>> attention;
  double attention_backward = 1;                                 ///< share of the backward, of the forward's
  double elementwise = 1, norm = 1, softmax = 1, optimizer = 1;  ///< of the memory's bandwidth
  double batched_product = 1;                                    ///< of the peak
};

/// By which figures a kernel's time was found.
enum class TimedBy : std::uint8_t { table, border, share, roofline };

struct KernelTime {
  Seconds time;
  TimedBy by = TimedBy::roofline;
};

/// The time of a kernel with so many flops and bytes moved (`traffic` times, by `launches` kernels). Nothing where the
/// device has no peak of the dtype, no bandwidth, or the kernel is of no measured sort: then the roofline holds.
struct KernelWork {
  Flops flops;
  Bytes bytes;
  double traffic = 1, launches = 1;
};
std::optional<KernelTime> kernel_time(const Efficiency&, const Device&, const GpuKernel&, const KernelWork&);

/// What a product needs at least, without efficiency: the logarithm's reference of tables.
std::optional<Seconds> product_roofline(const Device&, const GpuKernel&);

}  // namespace plimsoll
