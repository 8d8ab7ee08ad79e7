#pragma once
// The strategy `periodic`: the input of every k-th stage is kept, what is between is recomputed.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> periodic_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                        const Tape* before);

std::vector<Bytes> periodic_candidates(const PartTask&, const Options&);

inline constexpr std::array periodic_options{OptionInfo{
    .name = "every",
    .default_value = "auto",
    .values = "auto or a whole number from 1",
    .help = "how many stages are recomputed together, the last ones excepted; auto: the number that is the fastest "
            "within the budget",
    .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 1'000'000>(text); },
}};

inline constexpr StrategyInfo periodic_strategy{
    .name = "periodic",
    .family = Family::rematerialization,
    .summary = "keeps the input of every k-th stage and recomputes k stages at a time",
    .source = "torch.utils.checkpoint around every k stages in a row",
    .chains_only = true,
    .options = periodic_options,
    .tapes = periodic_tapes,
    .candidates = periodic_candidates,
};

}  // namespace plimsoll
