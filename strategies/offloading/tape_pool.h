#pragma once
// Simulated tapes whatever the budget: of those that fit a budget the fastest is taken, so that less memory is never
// faster.

#include <string_view>

#include "strategies/strategy.h"

namespace plimsoll {

class TapePool {
 public:
  /// Kept unless another tape is as fast within as little.
  void add(PlannedTape);
  void add(std::optional<PlannedTape> tape) {
    if (tape) add(std::move(*tape));
  }

  bool empty() const { return tapes_.empty(); }
  const PlannedTape* fastest_within(std::optional<Bytes> budget) const;

  /// The fastest tape for each budget; `reason` where none fits.
  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets, std::string_view reason) const;

  std::vector<Bytes> peaks() const;  ///< ascending

 private:
  std::vector<PlannedTape> tapes_;  ///< peaks rise, makespans fall
};

}  // namespace plimsoll
