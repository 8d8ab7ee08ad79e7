#pragma once
// The fastest sequence of rotor's class for a budget in bytes, not slots, with a proof of how fast any could be.
// Chains of up to `longest_exact_chain` stages are solved by fronts (rotor_fronts.h): exactly, unless a front grows
// beyond a limit and is rounded. Longer ones lie between two tables of slots, one rounded up and one down.

#include <functional>
#include <optional>
#include <vector>

#include "strategies/common/chain_sequence.h"

namespace plimsoll {

inline constexpr std::size_t longest_exact_chain = 250;

struct ExactPlan {
  ChainSequence sequence;
  Seconds time;
  Seconds lower_bound;  ///< no sequence of rotor's class within the budget is faster

  /// How much slower than the bound the sequence may be, as a part of its time; 0 when proven optimal.
  double gap() const { return time.value > lower_bound.value ? (time - lower_bound) / time : 0; }
};

class RotorExact {
 public:
  explicit RotorExact(ChainModel);

  /// One build answers every budget; nothing below smallest_feasible().
  std::optional<ExactPlan> solve(Bytes budget) const;

  /// A bound for every sequence of rotor's class within `budget`; nothing where there is none.
  std::optional<Seconds> lower_bound(Bytes budget) const;

  /// The least budget in which a sequence of rotor's class runs, to the byte.
  Bytes smallest_feasible() const { return least_memory_; }
  Bytes store_all_peak() const { return store_all_.peak; }

  /// Ascending budgets from the least to store_all's peak. Where plans are exact these are all at which the time falls;
  /// else they lie a slot apart.
  const std::vector<Bytes>& steps() const { return steps_; }

 private:
  void use_fronts();
  void use_tables();

  ChainModel model_;
  ChainCost store_all_;
  Bytes least_memory_;
  std::vector<Bytes> steps_;
  std::function<std::optional<Seconds>(Bytes)> recompute_bound_;
  std::function<ChainSequence(Bytes)> fastest_;  // for feasible budgets below store_all's peak
};

}  // namespace plimsoll
