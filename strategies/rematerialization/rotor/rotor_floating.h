#pragma once
// The strategy `rotor_floating`: weakly persistent checkpointing of a short chain (floating_table.h) as a tape.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> rotor_floating_tapes(const PartTask&, const Options&,
                                              std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> rotor_floating_candidates(const PartTask&, const Options&);

inline constexpr std::array rotor_floating_options{OptionInfo{
    .name = "slots",
    .default_value = "100",
    .values = "a whole number from 1 to 2000",
    .help = "sizes are rounded up to 1/slots of the store_all peak (not where their common divisor is that large)",
    .allowed = [](std::string_view text) { return integer_between<1, 2'000>(text); },
}};

inline constexpr StrategyInfo rotor_floating_strategy{
    .name = "rotor_floating",
    .family = Family::rematerialization,
    .summary = "rotor where checkpoints may move forward (weak persistence), for chains of up to 40 stages",
    .source =
        "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, 'Optimal re-materialization strategies for "
        "heterogeneous chains', ACM Transactions on Mathematical Software 50(2), 2024",
    .chains_only = true,
    .options = rotor_floating_options,
    .tapes = rotor_floating_tapes,
    .candidates = rotor_floating_candidates,
};

}  // namespace plimsoll
