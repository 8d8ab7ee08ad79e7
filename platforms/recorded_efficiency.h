#pragma once
// Efficiencies from a recorded step: for each sort of kernel the share with which its kernels together take as long as
// they did.

#include <string>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/platform.h"
#include "sim/ops/efficiency.h"

namespace plimsoll {

/// Kernels of one key of a file of efficiencies.
struct RecordedSort {
  std::string key;  ///< `elementwise`, `product_without_table.bf16`
  std::size_t kernels = 0;
  Seconds measured, by_share;  ///< of all; by the share it differs where no share is slow or fast enough
  double share = 1;
  double mean_error = 0;  ///< of |by the share / measured - 1|, each kernel weighted by its measured time
};

struct RecordedEfficiency {
  Efficiency efficiency;
  std::vector<RecordedSort> sorts;  ///< the longest first
  std::size_t others = 0;           ///< ops of no sort, whose times by figures are rooflines
  Seconds of_others;
};

/// Of the ops with measured times, those of collectives left out. Shares are of the device's peaks and bandwidth; the
/// floor is the shortest kernel. Throws InputError where the graph has no measured op of a sort, or the device neither
/// peaks nor bandwidth.
RecordedEfficiency recorded_efficiency(const Graph&, const Device&, std::string name);

}  // namespace plimsoll
