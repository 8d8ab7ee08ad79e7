#pragma once
// ParDNN: paths of a graph, mapped to processors by locality and load, and moved where memory is short.

#include "strategies/placement/emulation.h"
#include "strategies/placement/placing.h"

namespace plimsoll {

/// What is done about memory.
enum class PardnnMemory : std::uint8_t {
  ignored,
  moves,    ///< heuristic I: what does not fit in an emulation moves
  balance,  ///< heuristic II: the longest path is split, and parameters are balanced
};

struct PardnnOptions {
  PardnnMemory memory = PardnnMemory::moves;
  bool refines = false;                 ///< as ParDNN's first version does
  QueueOrder order = QueueOrder::fifo;  ///< in which a refinement is judged and memory is counted
};

/// Where it heeds memory, what memory_of() counts in the emulation is within the machine's limits. If it is Infeasible,
/// `smallest` is a limit with which this function finds a placement: of all processors that it chooses among and that
/// have the largest limit now. It is unset where others have too little.
PlacementOutcome place_pardnn(const OpDag&, const Machine&, const PardnnOptions&);

}  // namespace plimsoll
