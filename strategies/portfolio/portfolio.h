#pragma once
// The strategy `portfolio`: asks every method that trains exactly, alone and composed, improves the best of their plans
// by local moves, and takes the fastest within the budget. For those who do not want to choose.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> portfolio_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                         const Tape* before);

std::vector<Bytes> portfolio_candidates(const PartTask&, const Options&);

inline constexpr std::array portfolio_options{
    OptionInfo{
        .name = "effort",
        .default_value = "1",
        .values = "a whole number from 0 to 100",
        .help =
            "counted in work, not in seconds: scales the sizes up to which searches and integer programs are asked, "
            "their nodes and states, and the local moves that are tried; 0: only methods that are fast at any size",
        .allowed = integer_between<0, 100>,
    },
};

inline constexpr StrategyInfo portfolio_strategy{
    .name = "portfolio",
    .family = Family::baseline,
    .summary = "asks every method that trains exactly, alone and composed, and improves the best plan by local moves",
    .source = "none: a choice among the other strategies",
    .chains_only = false,
    .options = portfolio_options,
    .tapes = portfolio_tapes,
    .candidates = portfolio_candidates,
};

}  // namespace plimsoll
