#pragma once
// The strategy `chen_sqrt`: Chen's segments (chen.h) as a tape.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> chen_sqrt_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                         const Tape* before);

inline constexpr std::array chen_sqrt_options{OptionInfo{
    .name = "segments",
    .default_value = "sqrt",
    .values = "sqrt or a whole number from 1",
    .help = "how many segments the chain is cut into; sqrt: the square root of the number of stages, rounded",
    .allowed = [](std::string_view text) { return text == "sqrt" || integer_between<1, 1'000'000>(text); },
}};

inline constexpr StrategyInfo chen_sqrt_strategy{
    .name = "chen_sqrt",
    .family = Family::rematerialization,
    .summary = "keeps the first input of each of sqrt(n) segments and recomputes the rest, one segment at a time",
    .source = "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, section 4",
    .chains_only = true,
    .options = chen_sqrt_options,
    .tapes = chen_sqrt_tapes,
    .candidates = nullptr,
};

}  // namespace plimsoll
