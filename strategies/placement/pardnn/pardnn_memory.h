#pragma once
// ParDNN's memory heuristic I: what does not fit in an emulation moves, until all fits.

#include <vector>

#include "strategies/placement/emulation.h"
#include "strategies/placement/units.h"

namespace plimsoll {

struct Relieved {
  std::vector<std::uint32_t> on;  ///< by node: processor
  bool fits = false;              ///< by memory_of() of the emulation, on each processor
  std::int64_t reached = 0;       ///< if not: the largest peak beyond its limit, of the best round
};

/// Moves units between processors until the emulation keeps their limits. Each moves once at most. Groups are together
/// in `on`.
Relieved relieved(const OpDag&, const Machine&, const Units&, std::vector<std::uint32_t> on, QueueOrder);

}  // namespace plimsoll
