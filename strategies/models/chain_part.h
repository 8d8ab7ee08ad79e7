#pragma once
// A run of stages of a chain as a planner's problem, and a planner's sequence as the part's tape.

#include "sim/core/partition.h"
#include "sim/core/tape.h"
#include "sim/model/problem.h"
#include "strategies/models/chain_sequence.h"

namespace plimsoll {

/// Stages [first, last) of the problem's chain, of which the first `forward_only` ones have no backward: their forwards
/// run once, before all else, and keep nothing but what the next stage reads. Where the part does not hold the
/// network's loss, a stage of no time stands for waiting for the output gradient.
struct ChainRange {
  std::size_t first = 0, last = 0;
  std::size_t forward_only = 0;
  bool awaits = false;

  /// That are planned, with the one that waits.
  std::size_t planned() const { return last - first - forward_only + (awaits ? 1 : 0); }
};

/// The part's ops must be the forwards and backwards of consecutive stages of the problem's chain.
ChainRange chain_range(const Problem&, const Part&);

/// The stages that are planned, as a chain that ends in a loss.
struct ChainPart : ChainRange {
  Chain chain;
};
ChainPart chain_part(const Problem&, const Part&);

/// The part that computes the forward of a stage, or any copy of it.
PartId part_of_stage(const Problem&, const Partition&, std::size_t stage);

/// What crosses boundary j on its way forward, what passes by included; and of gradients on their way back.
std::vector<TensorId> forward_across(const Problem&, std::size_t j);
std::vector<TensorId> backward_across(const Problem&, std::size_t j);

/// What planners see of the part.
ChainModel chain_model(const Problem&, const ChainPart&);

/// The sequence on the graph's ops, with drops, receives and sends to the parts before and after (found in the
/// partition by stage), and the cuts that the part asks for. What waits for another part's gradient is cut there.
Tape chain_tape(const Problem&, const Partition&, PartId, const ChainRange&, const ChainSequence&);

}  // namespace plimsoll
