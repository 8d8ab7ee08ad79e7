#pragma once
// Baechi's way from a graph to a placement within memory: groups, fusion, list scheduling.

#include "strategies/placement/lists/list_schedulers.h"

namespace plimsoll {

enum class BaechiMethod : std::uint8_t {
  etf,  ///< what starts first
  sct,  ///< the same, but processors wait for the favourite children of what ran last
};

/// The makespan is what it expects with one channel a processor. Where no processor has room it names no limit that
/// would do: its account of memory is not the simulation's.
ListOutcome baechi_placement(const OpDag&, const Machine&, BaechiMethod);

}  // namespace plimsoll
