#pragma once
// The strategy `greedy_recompute`: from plain training on, evict the values that free most bytes for each second of
// recomputation while memory is fullest, again and again. For graphs of thousands of ops.
// Source: memory saved per second (MSPS) as the measure: Peng et al., "Capuchin", ASPLOS 2020; here applied to the
// simulated fullest moment, with the cost counted anew after every step.

#include <array>
#include <functional>

#include "strategies/common/recompute_order.h"
#include "strategies/strategy.h"

namespace plimsoll {

/// Takes the plan after every step. A step evicts 1 / `steps` of the first plan's memory, and one value at least.
void greedy_sequences(const OpModel&, std::int64_t steps, const std::function<void(const OpSequence&)>& take);

void add_greedy_recompute(PlanPool&, const OpModel&);

std::vector<TapeOutcome> greedy_recompute_tapes(const PartTask&, const Options&,
                                                std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> greedy_recompute_candidates(const PartTask&, const Options&);

inline constexpr StrategyInfo greedy_recompute_strategy{
    .name = "greedy_recompute",
    .family = Family::rematerialization,
    .summary = "evicts the values that free most bytes a second of recomputation where memory is fullest",
    .source = "own; the measure (memory saved per second) is Capuchin's, Peng et al., ASPLOS 2020",
    .chains_only = false,
    .options = {},
    .tapes = greedy_recompute_tapes,
    .candidates = greedy_recompute_candidates,
};

}  // namespace plimsoll
