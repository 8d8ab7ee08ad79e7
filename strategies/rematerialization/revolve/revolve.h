#pragma once
// The strategy `revolve`: binomial checkpointing (revolve_schedule.h) as a tape.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> revolve_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                       const Tape* before);

std::vector<Bytes> revolve_candidates(const PartTask&, const Options&);

inline constexpr std::array revolve_options{OptionInfo{
    .name = "slots",
    .default_value = "auto",
    .values = "auto or a whole number from 1 to 1000",
    .help = "how many inputs of stages may be kept at once, the network's input included; auto: the number whose "
            "schedule is the fastest within the budget",
    .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 1'000>(text); },
}};

inline constexpr StrategyInfo revolve_strategy{
    .name = "revolve",
    .family = Family::rematerialization,
    .summary = "binomial checkpointing: the fewest forwards for a number of slots, as if all stages were equal",
    .source = "Griewank, Walther, 'Algorithm 799: revolve', ACM Transactions on Mathematical Software 26(1), 2000",
    .chains_only = true,
    .options = revolve_options,
    .tapes = revolve_tapes,
    .candidates = revolve_candidates,
};

}  // namespace plimsoll
