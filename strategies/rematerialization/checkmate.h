#pragma once
// The strategy `checkmate`: Checkmate's integer program (checkmate_model.h), solved with CBC.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> checkmate_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                         const Tape* before);

std::vector<Bytes> checkmate_candidates(const PartTask&, const Options&);

inline constexpr std::array checkmate_options{
    OptionInfo{
        .name = "formulation",
        .default_value = "tight",
        .values = "tight or kappa",
        .help = "how the program says when a value dies: by one inequality a hazard, or as in the paper",
        .allowed = [](std::string_view text) { return text == "tight" || text == "kappa"; },
    },
    OptionInfo{
        .name = "time_limit",
        .default_value = "60",
        .values = "a whole number of seconds from 1 to 86400",
        .help = "where the solver stops for one budget; the best plan known by then comes with its proven gap",
        .allowed = integer_between<1, 86'400>,
    },
    OptionInfo{
        .name = "nodes",
        .default_value = "1000000",
        .values = "a whole number from 0 to 1000000000",
        .help = "the same by branch-and-bound nodes, which does not depend on the machine's speed",
        .allowed = integer_between<0, 1'000'000'000>,
    },
};

inline constexpr StrategyInfo checkmate_strategy{
    .name = "checkmate",
    .family = Family::rematerialization,
    .summary = "the fastest recomputation of a graph whose first runs keep their order, by integer programming",
    .source = "Jain et al., 'Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization', MLSys 2020",
    .chains_only = false,
    .options = checkmate_options,
    .tapes = checkmate_tapes,
    .candidates = checkmate_candidates,
};

}  // namespace plimsoll
