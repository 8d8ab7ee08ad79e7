#pragma once
// Which sub-chains, in how much memory, can be a part of a sequence no slower than one that is known: of all others no
// solver has to know anything. Found on a grid (rotor_grid.h) that bounds times from below, from the whole chain to its
// parts: what the rest of a sequence takes at least when a sub-chain is given so much memory. What is left of the known
// time may be the sub-chain's.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "strategies/rematerialization/rotor/rotor_grid.h"

namespace plimsoll {

class RotorRegion {
 public:
  /// Feasible budgets from `low` to `high`, for all of which a sequence is known.
  struct Known {
    Bytes low, high;
    Seconds recompute;
  };
  /// What a sub-chain is given in such sequences.
  struct Part {
    std::int64_t low = 0, high = -1;  ///< bytes; more than it can use counts as what it can
    double longest = 0;               ///< seconds that it may recompute

    bool is_used() const { return low <= high; }
  };

  /// By a grid that is rounded down and has all of its parts.
  RotorRegion(const RotorGrid&, std::span<const Known>);

  const Part& part(std::size_t i, std::size_t l, Entry entry) const { return parts_[at(i, l, entry)]; }

 private:
  class Search;

  static std::size_t at(std::size_t i, std::size_t l, Entry entry) {
    return l * (l + 1) + 2 * i + (entry == Entry::checkpoint ? 1 : 0);
  }

  std::vector<Part> parts_;  // (i, l) by l, then i, then entry
};

}  // namespace plimsoll
