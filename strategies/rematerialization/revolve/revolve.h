#pragma once
// Binomial checkpointing of equal steps: the fewest forwards with a given number of slots for checkpoints.
//   fewest(0 or 1 stages, s) = 0
//   fewest(n, 1) = n (n - 1) / 2
//   fewest(n, s) = min_j  j + fewest(n - j, s - 1) + fewest(j, s)
// where n counts the stages, the loss included, one slot holds the first input, and the forward that a stage saves
// right before its backward is not counted.
// Source: Griewank, Walther, "Algorithm 799: revolve", ACM TOMS 26(1), 2000.

#include <cstdint>
#include <vector>

#include "strategies/api/strategy.h"
#include "strategies/models/chain_model.h"
#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/block_table.h"

namespace plimsoll {

class RevolveSchedule {
 public:
  RevolveSchedule(std::size_t stages, std::size_t most_slots);

  /// Forwards that keep nothing, from 1 slot to most_slots.
  std::int64_t fewest_forwards(std::size_t slots) const { return entry(stages_, slots).forwards; }

  ChainSequence sequence(std::size_t slots) const;

 private:
  struct Entry {
    std::int64_t forwards;
    std::uint32_t split;  ///< stages before the next checkpoint
  };
  const Entry& entry(std::size_t stages, std::size_t slots) const {
    return table_[(slots - 1) * (stages_ + 1) + stages];
  }
  void append(ChainSequence&, std::size_t first, std::size_t stages, std::size_t slots) const;

  std::size_t stages_;
  std::vector<Entry> table_;  // by slots, then stages
};

// The strategy `revolve_hetero`: Revolve for stages of unequal times and sizes, where memory stands for slots.

/// Every stage a block with one option, which only the last stage of a sub-chain may use.
std::vector<Block> revolve_blocks(const ChainModel&);

}  // namespace plimsoll
