#pragma once
// How good a pipeline of ranks is, as it is simulated: for strategies that choose how many devices share out operators.

#include <span>
#include <string>
#include <variant>

#include "strategies/compose/passes.h"

namespace plimsoll {

/// What fits comes before what does not; of these what is faster, of those what needs less.
struct PipelineMerit {
  bool is_too_large = false;
  double seconds_or_bytes = 0;

  friend auto operator<=>(const PipelineMerit&, const PipelineMerit&) = default;
};

/// Of a problem as planners see it (for_planners), within the capacity of its first device, under a pipelining strategy
/// and the memory strategies behind it. Throws InputError where they cannot treat it.
PipelineMerit pipeline_merit(const Problem& folded, const Pass& pipeline, std::span<const Pass> memory);

}  // namespace plimsoll
