#pragma once
// The strategy `offload_exact`: of all ways to take values to the host and back whole, between their uses, the fastest,
// with a bound on what any such schedule takes. For short chains and graphs. Source: own search for the problem of
// Beaumont, Eyraud-Dubois, Shilova, "Optimal GPU-CPU offloading strategies for deep neural network training", Euro-Par
// 2020, which is NP-hard in the strong sense.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> offload_exact_tapes(const PartTask&, const Options&,
                                             std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> offload_exact_candidates(const PartTask&, const Options&);

inline constexpr std::array offload_exact_options{
    OptionInfo{"values", "14", "a whole number from 1 to 20",
               "up to how many values are searched; for more the plan is offload_greedy's", integer_between<1, 20>},
};

inline constexpr StrategyInfo offload_exact_strategy{
    .name = "offload_exact",
    .family = Family::offloading,
    .summary = "the fastest of all ways to offload values whole, in any order, on short chains, with a proven gap",
    .source = "own; the problem is Beaumont, Eyraud-Dubois, Shilova's, Euro-Par 2020",
    .chains_only = false,
    .options = offload_exact_options,
    .tapes = offload_exact_tapes,
    .candidates = offload_exact_candidates,
};

}  // namespace plimsoll
