#pragma once
// rotor with sizes rounded as in the published implementation, to a part of each budget (rotor_table.h), and never
// slower than what is found without (rotor_exact.h). Where that is proven to be optimal no table is filled.

#include "strategies/rematerialization/rotor/rotor_exact.h"

namespace plimsoll {

class RotorSlots {
 public:
  /// Budgets as for RotorExact.
  RotorSlots(const ChainModel&, std::int64_t slots, std::span<const Bytes> budgets = {});

  std::optional<ExactPlan> solve(Bytes budget) const;

  Bytes smallest_feasible() const { return unrounded_.smallest_feasible(); }

  /// Ascending budgets from the least to store_all's peak.
  std::vector<Bytes> steps() const;

 private:
  ChainModel model_;
  std::int64_t slots_;
  RotorExact unrounded_;
};

}  // namespace plimsoll
