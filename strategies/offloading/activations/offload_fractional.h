#pragma once
// The strategy `offload_fractional`: if any amount of data could be moved, it would be best to move just what is in
// excess, oldest first; values are cut into many chunks to come near that.
// Source: the fractional relaxation of Beaumont, Eyraud-Dubois, Shilova, "Optimal GPU-CPU offloading strategies for
// deep neural network training", Euro-Par 2020.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/offloading/activations/offload_levels.h"

namespace plimsoll {

std::vector<TapeOutcome> offload_fractional_tapes(const PartTask&, const Options&,
                                                  std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> offload_fractional_candidates(const PartTask&, const Options&);

inline constexpr std::array offload_fractional_options{
    OptionInfo{"chunks", "16", "a whole number from 1 to 1000",
               "into how many parts a value is cut, each freed on its own", integer_between<1, 1000>},
    levels_option,
};

inline constexpr StrategyInfo offload_fractional_strategy{
    .name = "offload_fractional",
    .family = Family::offloading,
    .summary = "moves just the bytes in excess, oldest first, in chunks",
    .source = "Beaumont, Eyraud-Dubois, Shilova, \"Optimal GPU-CPU offloading strategies\", Euro-Par 2020",
    .chains_only = false,
    .options = offload_fractional_options,
    .tapes = offload_fractional_tapes,
    .candidates = offload_fractional_candidates,
};

}  // namespace plimsoll
