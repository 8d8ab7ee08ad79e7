#pragma once
// The strategy `rotor`: the optimal memory-persistent checkpointing of a chain (rotor_conditions.h) as a tape.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> rotor_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                     const Tape* before);

std::vector<Bytes> rotor_candidates(const PartTask&, const Options&);

inline constexpr std::array rotor_options{OptionInfo{
    .name = "slots",
    .default_value = "exact",
    .values = "exact or a whole number from 1 to 100000",
    .help = "exact: sizes are not rounded; chains of more than 250 stages are within a proven gap; a number: sizes are "
            "also "
            "rounded up to 1/slots of the budget as published, and the faster plan is taken",
    .allowed = [](std::string_view text) { return text == "exact" || integer_between<1, 100'000>(text); },
}};

inline constexpr StrategyInfo rotor_strategy{
    .name = "rotor",
    .family = Family::rematerialization,
    .summary = "the fastest memory-persistent recomputation of a chain within the budget, by dynamic programming",
    .source =
        "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, 'Optimal checkpointing for heterogeneous chains', 2019",
    .chains_only = true,
    .options = rotor_options,
    .tapes = rotor_tapes,
    .candidates = rotor_candidates,
};

}  // namespace plimsoll
