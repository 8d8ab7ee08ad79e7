#pragma once
// The cheapest choices of some nodes of a table beside those that all others have: nodes are eliminated one after the
// other, the one whose table is smallest first, from tables of what it costs at best beside each choice of its
// neighbours (OptCNN's node and edge elimination, and beyond it). A depth-first search back through these tables, whose
// entries say exactly what the rest costs without a limit of memory, keeps to the limit.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "strategies/hybrid/split_table.h"

namespace plimsoll {

/// Choices of all nodes, with what they cost and keep.
struct SplitState {
  SplitChoices choices;
  double cost = 0;          ///< with the barrier for each choice or pair that cannot be
  std::vector<Bytes> kept;  ///< by moment
};

class SplitNeighbourhoods {
 public:
  /// Sums of gradients count by the weight.
  SplitNeighbourhoods(const SplitTable&, double weight);

  SplitState state_of(SplitChoices) const;
  /// Of a byte that is held at each moment: what regions are searched by that ask for it. Those of a table without a
  /// limit count as costs.
  void set_prices(std::vector<double> by_moment);
  /// What takes the place of costs that cannot be: more than all others together.
  double barrier() const { return barrier_; }
  const SplitTable& table() const { return table_; }
  /// Beside which others the node has an edge.
  std::vector<std::uint32_t> beside(std::uint32_t node) const;

  struct Ask {
    std::size_t largest = std::size_t{1} << 22U;  ///< entries of a table
    std::uint64_t tries = UINT64_MAX;             ///< that the search makes in vain
    double slack = 0;                             ///< so much dearer than the state is cheap enough
    bool may_leave_out = true;                    ///< else nothing is changed where a table would be too large
    bool takes_equal = false;                     ///< others that cost the same are taken, any of them
    bool by_prices = false;  ///< what may fit comes first, and the bound counts the room that the others leave
    std::optional<std::pair<std::uint32_t, std::uint32_t>> forced = {};  ///< a node, and the choice that it must have
  };
  struct Found {
    bool changed = false;       ///< the state, to the cheapest that was found within the limit
    bool is_whole = true;       ///< no node was left out and the search ended by itself: nothing is cheaper
    bool is_too_large = false;  ///< a node would have had to be left out
  };
  /// Nodes that would make a table too large are left out: those with the most, or any.
  Found improve(SplitState&, std::span<const std::uint32_t> nodes, const Ask&, std::mt19937_64&) const;

 private:
  class Region;
  struct Beside {
    std::uint32_t other = 0;
    std::uint32_t costs = 0;  ///< index in pairs_
    bool is_from = false;
  };

  std::size_t choices(std::uint32_t node) const { return own_[node].size(); }
  double pair(std::uint32_t node, const Beside&, std::uint32_t choice, std::uint32_t other) const;

  const SplitTable& table_;
  double barrier_ = 0;
  std::vector<std::vector<double>> own_;       // by node
  std::vector<std::vector<double>> unpriced_;  // the same, where there are prices
  std::vector<std::vector<double>> priced_;    // the same with the prices of what it keeps
  std::vector<double> prices_;                 // by moment
  std::vector<std::vector<double>> pairs_;     // those that edges share, once
  std::vector<std::vector<Beside>> beside_;
};

struct EliminatedSplit {
  SplitChoices choices;
  bool fits = true;       ///< else these are no choices: none were found that keep the limit and can be together
  bool is_proven = true;  ///< no others cost less within the limit, or none fit; else so many tries ended the search
};

/// The cheapest choices within the table's limit of memory. Nothing where a table would have more than `largest`
/// entries.
std::optional<EliminatedSplit> eliminated(const SplitTable&, std::size_t largest = std::size_t{1} << 22U,
                                          std::uint64_t tries = 1'000'000, double weight = 1);

}  // namespace plimsoll
