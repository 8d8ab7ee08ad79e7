#pragma once
// Slow and literal answers about chains, to test the solvers against. Shares no code with them but the model's fields.

#include <cstdint>
#include <optional>

#include "strategies/models/chain_sequence.h"

namespace plimsoll {

/// The least time of any sequence at all within `budget`: Dijkstra over what is resident. For up to 8 stages.
std::optional<double> unrestricted_optimum(const ChainModel&, std::int64_t budget);

/// The least time of rotor's class within `budget`: the recursion as it is written, in bytes, or store_all.
std::optional<double> persistent_optimum(const ChainModel&, std::int64_t budget);

/// The peak of a legal sequence, each value's last reader searched for from scratch at every step.
std::int64_t replayed_peak(const ChainModel&, const ChainSequence&);

/// What random chains look like. Whole times and small sizes make ties; zero sizes are frequent.
struct ChainRanges {
  std::size_t stages = 4;
  std::int64_t largest_size = 6;
  std::int64_t largest_workspace = 4;
  std::int64_t largest_time = 5;     ///< whole seconds
  std::int64_t zero_percent = 15;    ///< of the sizes
  std::int64_t once_percent = 8;     ///< of the stages may not be recomputed
  std::int64_t keeps_percent = 100;  ///< of the boundary tensors are read by the backward of either neighbour
  std::uint64_t early_percent = 15;  ///< of the backwards let go of inner tensors before they make gradients
  bool parameters = true;            ///< with resident bytes and new gradients
  bool nograd_differs = true;
};

ChainModel random_chain_model(const ChainRanges&, std::uint64_t seed);

/// A random legal sequence, forwards repeated at random.
ChainSequence random_sequence(const ChainModel&, std::uint64_t seed);

/// The worked example of the architecture page.
ChainModel worked_example_model();

}  // namespace plimsoll
