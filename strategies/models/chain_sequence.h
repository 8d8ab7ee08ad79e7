#pragma once
// A plan for one pass over a chain: forwards that keep nothing, forwards that save, and backwards, in order.

#include <cstddef>
#include <string>
#include <vector>

#include "strategies/models/chain_model.h"

namespace plimsoll {

struct ChainStep {
  enum class Kind : std::uint8_t {
    forward,         ///< leaves x_{i+1} only
    forward_saving,  ///< leaves saved(i), which contains x_{i+1}, for backward i
    backward,
  };
  Kind kind;
  std::size_t stage;
  friend constexpr bool operator==(ChainStep, ChainStep) = default;
};

using ChainSequence = std::vector<ChainStep>;

struct ChainCost {
  Seconds time;
  Seconds recompute;  ///< durations of the forwards that repeat a stage
  Bytes peak;         ///< everything counted: what is resident and the network's input, too
  std::string violation;

  bool legal() const { return violation.empty(); }
};

/// Time and exact peak of a sequence. x_i dies after the last step that reads it before it is made again: forwards i,
/// backward i where it keeps its input, backward i-1 where it keeps its output and saved it. What else
/// forward_saving(i) made stays until backward i; x_0 lives from the start until the end of backward 0.
/// Of an illegal sequence only `violation` is set.
ChainCost evaluate(const ChainModel&, const ChainSequence&);

/// Every forward saves, then every backward.
ChainSequence store_all_sequence(std::size_t stages);

/// The sequence in one line, `F0 S1 B1`: F keeps nothing, S saves, B is a backward.
std::string to_string(const ChainSequence&);

}  // namespace plimsoll
