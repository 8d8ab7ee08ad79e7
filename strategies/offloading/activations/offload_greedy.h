#pragma once
// The strategy `offload_greedy`: move to the host, where memory is fullest, what costs least exposed time for its
// bytes; for any chain or graph. Source: own. The measures are Capuchin's free time (Peng et al., ASPLOS 2020) and
// bytes per exposed second.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/offloading/activations/offload_levels.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> offload_greedy_tapes(const PartTask&, const Options&,
                                              std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> offload_greedy_candidates(const PartTask&, const Options&);

inline constexpr std::array offload_greedy_options{
    OptionInfo{"chunks", "4", "a whole number from 1 to 64",
               "into how many parts a value is cut, each freed on its own", integer_between<1, 64>},
    levels_option,
};

inline constexpr StrategyInfo offload_greedy_strategy{
    .name = "offload_greedy",
    .family = Family::offloading,
    .summary = "moves to the host what frees most bytes per exposed second where memory is fullest",
    .source = "own; free time as measured by Capuchin, Peng et al., ASPLOS 2020",
    .chains_only = false,
    .options = offload_greedy_options,
    .tapes = offload_greedy_tapes,
    .candidates = offload_greedy_candidates,
};

}  // namespace plimsoll
