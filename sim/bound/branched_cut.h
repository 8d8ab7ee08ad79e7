#pragma once
// What an instant keeps, exactly: branch and bound on the values that the two best trades round a budget dispute. Each
// node is a smallest cut with some values decided (sim/bound/README.md).

#include <cstddef>
#include <vector>

#include "sim/bound/snapshot_cut.h"

namespace plimsoll {

struct BranchedBound {
  Seconds extra;                   ///< no schedule runs less again; infinite where none fits
  bool is_exact = false;           ///< the first of `found` takes no more than that
  std::vector<SnapshotCut> found;  ///< trades that fit, all different, the least extra first
  std::size_t nodes = 0;
};

struct BranchLimits {
  std::size_t nodes = 1000;
  std::size_t found = 32;  ///< trades that are given back, at most
  Seconds enough;          ///< what it need not prove to be too little: that of a plan; 0: all of it
};

/// Of schedules without copies. Never below SnapshotCuts::bound but for rounding. More nodes never make it lower.
BranchedBound branched_bound(SnapshotCuts&, const SnapshotModel&, Bytes budget, const BranchLimits&);

}  // namespace plimsoll
