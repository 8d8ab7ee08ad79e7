#pragma once
// The strategy `checkmate_lp`: Checkmate's relaxation with two-phase rounding (checkmate_rounding.h). The relaxation is
// solved at fixed levels of memory, whatever the budget, and all rounded plans form one pool: so less memory is never
// faster, and a plan made for another level may serve a budget better than its own.

#include <array>
#include <string>

#include "strategies/common/op_model.h"
#include "strategies/common/op_sequence.h"
#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> checkmate_lp_tapes(const PartTask&, const Options&,
                                            std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> checkmate_lp_candidates(const PartTask&, const Options&);

struct RoundingEffort {
  std::int64_t levels = 10, samples = 0, seed = 1, seconds = 60;
};

/// Adds the rounded plans of all levels between the largest working set of an op and the pool's fastest plan. Which
/// limit ended that early, if one did.
std::string add_rounded(PlanPool&, const OpModel&, const RoundingEffort&);

inline constexpr std::array checkmate_lp_options{
    OptionInfo{
        .name = "levels",
        .default_value = "10",
        .values = "a whole number from 1 to 1000",
        .help = "how many memory levels the relaxation is solved at",
        .allowed = integer_between<1, 1000>,
    },
    OptionInfo{
        .name = "samples",
        .default_value = "10",
        .values = "a whole number from 0 to 100000",
        .help = "random roundings a level, beside the thresholds 0.1 to 0.9",
        .allowed = integer_between<0, 100'000>,
    },
    OptionInfo{
        .name = "seed",
        .default_value = "1",
        .values = "a whole number from 0 to 1000000000",
        .help = "of the random roundings",
        .allowed = integer_between<0, 1'000'000'000>,
    },
    OptionInfo{
        .name = "time_limit",
        .default_value = "60",
        .values = "a whole number of seconds from 1 to 86400",
        .help = "for all relaxations together; levels that are not reached are left out",
        .allowed = integer_between<1, 86'400>,
    },
};

inline constexpr StrategyInfo checkmate_lp_strategy{
    .name = "checkmate_lp",
    .family = Family::rematerialization,
    .summary = "Checkmate's relaxation at several memory levels, rounded in two phases",
    .source =
        "Jain et al., 'Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization', MLSys 2020, "
        "section 5",
    .chains_only = false,
    .options = checkmate_lp_options,
    .tapes = checkmate_lp_tapes,
    .candidates = checkmate_lp_candidates,
};

}  // namespace plimsoll
