#pragma once
// The strategy `rockmate`: blocks solved into options (rockmate_blocks.h, for graphs rockmate_graph.h), and a recursion
// over blocks (block_table.h).

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> rockmate_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                        const Tape* before);

std::vector<Bytes> rockmate_candidates(const PartTask&, const Options&);

inline constexpr std::array rockmate_options{
    OptionInfo{
        .name = "block",
        .default_value = "auto",
        .values = "auto or a whole number from 1 to 100",
        .help = "stages a block, auto: the square root of their number; in graphs forwards a block, auto: the best of "
                "6, 12, 24",
        .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 100>(text); },
    },
    OptionInfo{
        .name = "options",
        .default_value = "10",
        .values = "a whole number from 1 to 100",
        .help = "budgets at which each block is solved, twice: counting what it keeps, and counting all it needs",
        .allowed = [](std::string_view text) { return integer_between<1, 100>(text); },
    },
    OptionInfo{
        .name = "slots",
        .default_value = "500",
        .values = "a whole number from 1 to 100000",
        .help = "sizes are rounded up to 1/slots of the store_all peak between blocks (not where their common divisor "
                "is that large)",
        .allowed = [](std::string_view text) { return integer_between<1, 100'000>(text); },
    }};

inline constexpr StrategyInfo rockmate_strategy{
    .name = "rockmate",
    .family = Family::rematerialization,
    .summary =
        "solves blocks of a chain or graph into several ways to keep or recompute, equal ones once, and combines them",
    .source =
        "Zhao, Le Hellard, Eyraud-Dubois, Gusak, Beaumont, 'Rockmate: an efficient, fast, automatic and generic "
        "tool for re-materialization in PyTorch', ICML 2023; graphs: Gusak et al., 'HiRemate', ICML 2025",
    .chains_only = false,
    .options = rockmate_options,
    .tapes = rockmate_tapes,
    .candidates = rockmate_candidates,
};

}  // namespace plimsoll
