#pragma once
// Simulated tapes whatever the budget, of which each budget gets the fastest that fits.

#include <string_view>
#include <utility>

#include "strategies/api/plan_front.h"

namespace plimsoll {

class TapePool {
 public:
  void add(PlannedTape made) {
    const Bytes needs = made.peak;
    add(std::move(made), needs);
  }
  /// For budgets from `needs` on: more than its peak, where only the dates of copies make the peak less.
  void add(PlannedTape made, Bytes needs) {
    EXPECTS(made.peak <= needs);
    const Seconds makespan = made.makespan;
    front_.add(needs, makespan, std::move(made));
  }
  void add(std::optional<PlannedTape> tape) {
    if (tape) add(std::move(*tape));
  }

  bool empty() const { return front_.empty(); }
  const PlannedTape* fastest_within(std::optional<Bytes> budget) const { return front_.fastest_within(budget); }

  /// The fastest tape for each budget; `reason` where none fits.
  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets, std::string_view reason) const {
    return front_.outcomes(budgets, reason, [](const PlannedTape& tape) { return tape; });
  }

  std::vector<Bytes> peaks() const { return front_.budgets(); }  ///< what its tapes need, ascending

 private:
  PlanFront<PlannedTape> front_;
};

}  // namespace plimsoll
