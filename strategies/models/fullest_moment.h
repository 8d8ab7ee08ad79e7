#pragma once
// The moment at which a plan of ops needs the most memory, and the values that are there then.

#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

struct FullestMoment {
  Bytes peak;
  std::size_t run = 0;              ///< index into the sequence
  std::size_t turn = 0;             ///< the last op that has run for the first time by then
  std::vector<bool> there;          ///< by storage
  std::vector<std::uint32_t> runs;  ///< by op: how often it runs in the whole plan
};

FullestMoment fullest_moment(const OpModel&, const OpSequence&);

/// Of each run of a plan, what is resident included.
struct MemoryOfRun {
  Bytes before;  ///< right before it, parameter gradients not counted
  Bytes during;
};
std::vector<MemoryOfRun> memory_of_runs(const OpModel&, const OpSequence&);

}  // namespace plimsoll
