#pragma once
// Codecs and recomputation of a chain's stages chosen together, by rotor's recursion over (first stage, last stage,
// memory) in which a stage may save in several ways (rotor/block_table.h). A way is a form for each value that the
// stage's backward reads and nobody's but its own and the one before it. With m bytes for everything but x_i:
//   O(i, l, m) = min( min_w time_w + price square_w + O(i+1, l, m - kept_w)             stage i saves in way w
//                     min_j nograd_i..j-1 + O(j, l, m - x_j) + O(i, j-1, m) )           it runs again
// `price` seconds for the whole squared error of all gradients is the multiplier of the bound on it.
// Source: the recursion is that of Beaumont et al., "Optimal checkpointing for heterogeneous chains", 2019, with the
// options of Zhao et al., "Rockmate", ICML 2023; packed forms as options, and the price, are our own.

#include <cstdint>
#include <span>
#include <vector>

#include "strategies/compression/compression_choice.h"
#include "strategies/models/chain_sequence.h"

namespace plimsoll {

struct PackedStages {
  ChainSequence sequence;
  std::vector<std::uint32_t> forms;  ///< by saved value
};

struct StageEffort {
  std::int64_t cells = 40'000'000;  ///< steps of the recursion for a price, about; decides the number of slots
  std::size_t ways = 12;            ///< of a stage, at most
  std::size_t plans = 24;           ///< for each price, at most
  bool recomputes = true;           ///< else every stage saves when it first runs
};

/// Plans of a chain on one device for each price. The model, the values and their forms are those of plain training.
/// Sizes are rounded up to slots, of which there are 30 to 500; packing and unpacking are taken to need the largest
/// packed form of the stage beside all else. Of more ways than `ways` those that save the least and the most stay, and
/// some between.
std::vector<PackedStages> stage_plans(const PartTask&, const OffloadModel&, std::span<const SavedTensor>,
                                      const KeptForms&, std::span<const double> prices, const StageEffort&);

}  // namespace plimsoll
