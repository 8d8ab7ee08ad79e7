#pragma once
// The strategy `offload_dp`: which stages' values leave, by dynamic programming over the stages of a chain, if copies
// that end inside a stage were free to be counted at its end. Source: the second relaxation of Beaumont, Eyraud-Dubois,
// Shilova, "Optimal GPU-CPU offloading strategies for deep neural network training", Euro-Par 2020. Its text was not at
// hand; states as in the offloading half of POFO (Beaumont, Eyraud-Dubois, Shilova, NeurIPS 2021).

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/offloading/activations/offload_levels.h"

namespace plimsoll {

std::vector<TapeOutcome> offload_dp_tapes(const PartTask&, const Options&,
                                          std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> offload_dp_candidates(const PartTask&, const Options&);

inline constexpr std::array offload_dp_options{
    OptionInfo{"slots", "24", "a whole number from 2 to 100",
               "sizes are rounded to this part of what can be offloaded, in the choice only", integer_between<2, 100>},
    OptionInfo{"chunks", "4", "a whole number from 1 to 64",
               "into how many parts a value is cut, each freed on its own", integer_between<1, 64>},
    levels_option,
};

inline constexpr StrategyInfo offload_dp_strategy{
    .name = "offload_dp",
    .family = Family::offloading,
    .summary = "chooses the stages to offload by dynamic programming over what waits to leave and to come back",
    .source = "Beaumont, Eyraud-Dubois, Shilova, \"Optimal GPU-CPU offloading strategies\", Euro-Par 2020",
    .chains_only = true,
    .options = offload_dp_options,
    .tapes = offload_dp_tapes,
    .candidates = offload_dp_candidates,
};

}  // namespace plimsoll
