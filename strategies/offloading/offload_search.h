#pragma once
// The search of `offload_exact`. Class: every value between its uses leaves whole or stays; those that leave do so in
// the order in which they were made, and come back in the order in which they are needed; copies begin as soon as they
// may; a position waits for copies to the host only where memory needs it.
//
// For each subset, a walk over the positions keeps what no other walk dominates, by how many values have been asked
// back: now, when the link back is free, when each value arrives and when each copy to the host ends; a walk with all
// of them no later is as good. Before each position some more values may be asked back.

#include "strategies/offloading/offload_moves.h"

namespace plimsoll {

struct BestMoves {
  std::vector<OffloadMove> moves;
  Seconds makespan;  ///< of one micro-batch, if nobody shares the links
};

/// Nothing where no subset is enough. `enough`: a makespan at which the search may stop.
std::optional<BestMoves> best_moves(const OffloadModel&, const std::vector<OffloadItem>&, Bytes budget, Seconds enough);

}  // namespace plimsoll
