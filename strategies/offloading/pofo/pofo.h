#pragma once
// The strategy `pofo`: recomputation and offloading of a chain's activations chosen together, by dynamic programming.
// Source: Beaumont, Eyraud-Dubois, Shilova, "Efficient combination of rematerialization and offloading for training
// DNNs", NeurIPS 2021.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> pofo_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                    const Tape* before);

std::vector<Bytes> pofo_candidates(const PartTask&, const Options&);

inline constexpr std::array pofo_options{
    OptionInfo{"slots", "100", "a whole number from 2 to 200",
               "sizes are rounded to this part of what plain training needs, in the choice only",
               integer_between<2, 200>},
    OptionInfo{"chunks", "4", "a whole number from 1 to 64",
               "into how many parts a value is cut, each freed on its own", integer_between<1, 64>},
    OptionInfo{"levels", "40", "a whole number from 1 to 200",
               "at how many levels of memory plans are made, for all budgets", integer_between<1, 200>},
};

inline constexpr StrategyInfo pofo_strategy{
    .name = "pofo",
    .family = Family::offloading,
    .summary = "recomputes and offloads, chosen together by dynamic programming over what is kept, leaves and returns",
    .source =
        "Beaumont, Eyraud-Dubois, Shilova, \"Efficient combination of rematerialization and offloading\", NeurIPS "
        "2021",
    .chains_only = true,
    .options = pofo_options,
    .tapes = pofo_tapes,
    .candidates = pofo_candidates,
};

}  // namespace plimsoll
