#pragma once
// The best plans of the methods that need no search: what a search that is cut short must not be worse than.

#include <string_view>

#include "strategies/api/strategy.h"

namespace plimsoll {

struct CheaperPlan {
  TapeOutcome outcome;
  std::string_view made_by = {};  ///< of a tape: the strategy, as on the command line
};

/// For each budget the best answer of all strategies that only recompute and whose work grows slowly with the part, as
/// far as they take one of its size. `lp_seconds`: limit of Checkmate's relaxations, which are asked where that is one
/// second at least; the other methods run to their end.
std::vector<CheaperPlan> cheaper_plans(const PartTask&, std::span<const std::optional<Bytes>> budgets,
                                       double lp_seconds);

}  // namespace plimsoll
