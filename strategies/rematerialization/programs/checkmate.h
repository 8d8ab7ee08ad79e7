#pragma once
// The strategy `checkmate`: Checkmate's integer program (checkmate_model.h), solved with CBC.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/common/solver_options.h"
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
    time_limit_option,
    nodes_option,
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
