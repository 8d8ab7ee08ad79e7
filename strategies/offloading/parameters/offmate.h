#pragma once
// The strategy `offmate`: some parameters live on the host and stream to the device around their uses, some optimizer
// states live there and the host updates their parameters, the rest stays on the device; which, and how far ahead, by
// simulation of many choices. Source: Zhao, Eyraud-Dubois, Le Hellard, Gusak, Beaumont, "OffMate: full fine-tuning of
// LLMs on a single GPU by re-materialization and offloading", 2024, whose continuous program is the bound here.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> offmate_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                       const Tape* before);

std::vector<Bytes> offmate_candidates(const PartTask&, const Options&);

inline constexpr std::array offmate_options{
    OptionInfo{
        .name = "lead",
        .default_value = "auto",
        .values = "auto or a whole number",
        .help =
            "layers between the one after which streamed parameters begin to arrive and their own; auto: 1, 2 or 4, "
            "the fastest within the budget",
        .allowed = [](std::string_view text) { return text == "auto" || integer_between<0, 1'000'000>(text); },
    },
    OptionInfo{
        .name = "steps",
        .default_value = "8",
        .values = "a whole number from 1 to 100",
        .help = "how finely the shares of updates on the host and of streamed parameters are tried",
        .allowed = integer_between<1, 100>,
    },
    OptionInfo{
        .name = "overlap",
        .default_value = "on",
        .values = "on or off",
        .help = "on: an update on the host begins as soon as its gradient is there; off: after the backward",
        .allowed = [](std::string_view text) { return text == "on" || text == "off"; },
    }};

inline constexpr StrategyInfo offmate_strategy{
    .name = "offmate",
    .family = Family::offloading,
    .summary = "streams a part of the parameters and updates a part of them on the host, inside the iteration",
    .source =
        "Zhao et al., 'OffMate: full fine-tuning of LLMs on a single GPU by re-materialization and offloading', 2024",
    .chains_only = false,
    .options = offmate_options,
    .tapes = offmate_tapes,
    .candidates = offmate_candidates,
    .moves_parameters = true,
};

}  // namespace plimsoll
