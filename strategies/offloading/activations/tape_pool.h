#pragma once
// Simulated tapes whatever the budget: of those that fit a budget the fastest is taken, so that less memory is never
// faster.

#include <string_view>

#include "strategies/strategy.h"

namespace plimsoll {

class TapePool {
 public:
  /// Kept unless another tape is as fast within as little.
  void add(PlannedTape made) {
    const Bytes needs = made.peak;
    add(std::move(made), needs);
  }
  /// For budgets from `needs` on: more than its peak, where only the dates of copies make the peak less.
  void add(PlannedTape, Bytes needs);
  void add(std::optional<PlannedTape> tape) {
    if (tape) add(std::move(*tape));
  }

  bool empty() const { return tapes_.empty(); }
  const PlannedTape* fastest_within(std::optional<Bytes> budget) const;

  /// The fastest tape for each budget; `reason` where none fits.
  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets, std::string_view reason) const;

  std::vector<Bytes> peaks() const;  ///< what its tapes need, ascending

 private:
  struct Kept {
    Bytes needs;
    PlannedTape tape;
  };
  std::vector<Kept> tapes_;  ///< needs rise, makespans fall
};

}  // namespace plimsoll
