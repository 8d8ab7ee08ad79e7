#pragma once
// The fastest sequence of rotor's class for a budget in bytes, not slots, with a proof of how fast any could be.
// Chains of up to `longest_exact_chain` stages are solved by fronts (rotor_fronts.h): exactly, unless a front grows
// beyond a limit and is rounded. Longer ones are followed along a grid and bounded by another.

#include <functional>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "strategies/models/chain_sequence.h"
#include "strategies/rematerialization/rotor/rotor_fronts.h"

namespace plimsoll {

inline constexpr std::size_t longest_exact_chain = 250;

/// A grid of so few points leads to a plan, and to a bound, in a small part of the time that solving takes.
inline constexpr GridPoints few_points{.inner = 64, .last = 2048};

struct ExactPlan {
  ChainSequence sequence;
  Seconds time;
  Seconds lower_bound;  ///< no sequence of rotor's class within the budget is faster

  /// How much slower than the bound the sequence may be, as a part of the bound; 0 when proven optimal.
  double gap() const { return time > lower_bound ? time / lower_bound - 1 : 0; }
};

class RotorExact {
 public:
  /// Chains of up to `longest_exact` stages are solved exactly. Where `budgets` are given only these, or what is
  /// between them, will be asked for: the answers are the same, and for few budgets of a long chain there much sooner.
  /// Grids of longer ones have so many points, by default as many as are affordable.
  explicit RotorExact(ChainModel, std::span<const Bytes> budgets = {}, std::size_t longest_exact = longest_exact_chain,
                      std::optional<GridPoints> = {});

  /// One build answers every budget; nothing below smallest_feasible().
  std::optional<ExactPlan> solve(Bytes budget) const;

  /// A bound for every sequence of rotor's class within `budget`; nothing where there is none.
  std::optional<Seconds> lower_bound(Bytes budget) const;

  /// The least budget in which a sequence of rotor's class runs, to the byte.
  Bytes smallest_feasible() const { return least_memory_; }
  Bytes store_all_peak() const { return store_all_.peak; }

  /// Ascending budgets from the least to store_all's peak: all at which the time falls.
  std::vector<Bytes> steps() const;

 private:
  void use_fronts(const FrontWindow&);
  FrontWindow window(std::span<const Bytes> budgets) const;
  std::variant<FrontWindow, Seconds> window(std::span<const Bytes> budgets, Seconds longest_recompute) const;
  void use_levels(GridPoints);

  ChainModel model_;
  ChainCost store_all_;
  Bytes least_memory_;
  // For feasible budgets below store_all's peak.
  std::function<std::vector<Bytes>()> steps_;
  std::function<std::optional<Seconds>(Bytes)> recompute_bound_;
  std::function<ChainSequence(Bytes)> fastest_;
};

}  // namespace plimsoll
