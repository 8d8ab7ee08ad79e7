#pragma once
// Alpa's search between operators: a row of layers is cut into stages, each on some of the devices, so that one
// iteration of a synchronous pipeline is as short as can be: the stages' times and (B - 1) times the longest of them.
// Source: Zheng et al., "Alpa: Automating Inter- and Intra-Operator Parallelism for Distributed Deep Learning", OSDI
// 2022, section 5.2. Its recursion for one bound on the longest stage is kept; which bounds are tried is found
// otherwise: the sum of the times falls in steps as the bound grows, and only the steps can be optimal.

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "strategies/pipelining/planners/range_fits.h"

namespace plimsoll {

struct AlpaProblem {
  /// A stage that may be: layers [first, last) on so many devices.
  struct Stage {
    std::uint32_t first = 0, last = 0, devices = 1;
    double seconds = 0;                                                     ///< of a micro-batch
    std::uint32_t most_behind = std::numeric_limits<std::uint32_t>::max();  ///< stages with which it fits
  };
  std::uint32_t layers = 0, devices = 1, micro_batches = 1;
  std::vector<Stage> stages;
  RangeFits fits = {};
};

struct AlpaPlan {
  double seconds = 0;                 ///< of an iteration
  std::vector<std::uint32_t> stages;  ///< indices into the problem's, from the first layers on; all devices are used
  std::uint32_t bounds = 0;           ///< on the longest stage that were tried
};

std::optional<AlpaPlan> plan_alpa(const AlpaProblem&);

}  // namespace plimsoll
