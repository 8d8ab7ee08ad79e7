#pragma once
// Dynamic tensor rematerialization with banishing in place of eager eviction: a storage to which nobody refers any more
// and of which no evicted tensor was computed dies for good, and what was computed of it is never evicted again, since
// it could not be computed again. Until then it may be evicted and computed again like any other.
// The rules are those of simrd's RuntimeV1, down to the order of unlocking: while the arguments of a call are unlocked
// one after the other, a banished one leaves the list of arguments, and the one behind it is passed over, stays locked
// and so in memory. Source: as dtr_runtime.h, appendix D.2 ("banishing").

#include "strategies/rematerialization/dtr/dtr_runtime.h"

namespace plimsoll {

/// Heuristics that look at no evicted neighbours; banishing cuts the graph that the others walk.
constexpr bool can_banish(DtrHeuristic h) {
  return h == DtrHeuristic::local || h == DtrHeuristic::lru || h == DtrHeuristic::size || h == DtrHeuristic::random;
}

/// As run_dtr. `eager_evictions` counts the storages that were in memory when they were banished.
DtrRun run_dtr_banishing(const OpLog&, const DtrOptions&);

}  // namespace plimsoll
