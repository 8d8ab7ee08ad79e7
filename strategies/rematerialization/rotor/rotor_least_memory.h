#pragma once
// The least memory in which rotor's recursion (rotor_conditions.h) can run a chain, to the byte:
//   need(i, i) = all(i, i)
//   need(i, l) = min( max(all(i, l), kept_i + need(i+1, l)),
//                     min_j max(null(i, j, l), x_j + need(j, l), need(i, j-1)) )

#include "strategies/models/chain_sequence.h"

namespace plimsoll {

struct LeastMemory {
  Bytes budget;            ///< everything counted
  ChainSequence sequence;  ///< one that keeps it; not the fastest
};

LeastMemory rotor_least_memory(const ChainModel&);

}  // namespace plimsoll
