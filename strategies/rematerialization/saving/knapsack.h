#pragma once
// The strategy `knapsack`: which ops' results are worth their bytes, as PyTorch's activation memory budget asks it; the
// others may be recomputed, and a minimum cut (saved_values.h) says what is saved then.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> knapsack_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                        const Tape* before);

std::vector<Bytes> knapsack_candidates(const PartTask&, const Options&);

inline constexpr std::array knapsack_options{
    OptionInfo{
        .name = "solver",
        .default_value = "dp",
        .values = "greedy, dp or ilp",
        .help = "greedy: by time per byte; dp: optimal for bytes rounded to 1/10000 of all; ilp: the 0/1 program, by "
                "branch and bound",
        .allowed = [](std::string_view text) { return text == "greedy" || text == "dp" || text == "ilp"; },
    },
    OptionInfo{
        .name = "steps",
        .default_value = "100",
        .values = "a whole number from 1 to 10000",
        .help = "how many capacities of the knapsack are tried; the budget gets the fastest whose true peak fits",
        .allowed = [](std::string_view text) { return integer_between<1, 10'000>(text); },
    }};

inline constexpr StrategyInfo knapsack_strategy{
    .name = "knapsack",
    .family = Family::rematerialization,
    .summary =
        "saves the ops' results that save the most recomputation for their bytes, a knapsack, then a minimum cut",
    .source = "PyTorch, torch/_functorch/partitioners.py: activation_memory_budget and its solvers",
    .chains_only = false,
    .options = knapsack_options,
    .tapes = knapsack_tapes,
    .candidates = knapsack_candidates,
};

}  // namespace plimsoll
