#pragma once
// Plans of rotor's class for every budget of a long chain: those that a grid (rotor_grid.h) leads to at a ladder of
// budgets, each budget answered by the fastest of the rungs below it, so that less memory is never faster. A second
// grid bounds how fast any plan of the class can be.

#include <optional>
#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/rotor_grid.h"

namespace plimsoll {

class RotorLadder {
 public:
  explicit RotorLadder(const ChainModel&, GridPoints);

  Bytes smallest_feasible() const { return estimate_.smallest_feasible(); }

  /// A bound for every sequence of rotor's class within a feasible budget.
  Seconds least_recompute(Bytes budget) const;

  ChainSequence solve(Bytes budget) const;

  /// The budgets below store_all's peak at which the time falls, ascending.
  std::vector<Bytes> steps() const;

 private:
  // Followed when first asked for.
  struct Rung {
    Bytes budget;
    mutable std::optional<Seconds> time;
  };

  Seconds time(const Rung&) const;
  const Rung& best_rung(Bytes budget) const;

  ChainModel model_;
  RotorGrid bound_, estimate_;
  Seconds work_;  // of store_all
  std::vector<Rung> rungs_;
};

}  // namespace plimsoll
