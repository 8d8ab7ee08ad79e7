#pragma once
// The strategy `min_cut`: PyTorch's min-cut partitioner (saved_values.h) on the op graph.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/rematerialization/saving/saved_values.h"
#include "strategies/strategy.h"

namespace plimsoll {

/// Whether an op of this kind is a matrix product, a convolution or attention, which PyTorch does not recompute.
bool is_compute_intensive(std::string_view kind);

/// Those that is_compute_intensive() names, and banned_anyway().
Banned banned_with_compute(const PartTask&, const OpModel&);

std::vector<TapeOutcome> min_cut_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                       const Tape* before);

std::vector<Bytes> min_cut_candidates(const PartTask&, const Options&);

inline constexpr std::array min_cut_options{
    OptionInfo{
        .name = "ban",
        .default_value = "auto",
        .values = "auto, compute or none",
        .help = "which ops are not recomputed: compute: matrix products, convolutions and attention, as in PyTorch; "
                "none: any may be; auto: the fastest of both and of saving everything within the budget",
        .allowed = [](std::string_view text) { return text == "auto" || text == "compute" || text == "none"; },
    },
    OptionInfo{
        .name = "row",
        .default_value = "auto",
        .values = "auto or a whole number from 1 to 1000000",
        .help = "how many ops in a row may run again before a value is saved all the same (PyTorch: about 100 small "
                "ones); auto: 1, 2, 4, .. without end, the fastest within the budget",
        .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 1'000'000>(text); },
    },
    OptionInfo{
        .name = "distance",
        .default_value = "on",
        .values = "on or off",
        .help = "on: a value counts 1.1 times more for every op between it and its reader in the backward, as in "
                "PyTorch; off: bytes only",
        .allowed = [](std::string_view text) { return text == "on" || text == "off"; },
    }};

inline constexpr StrategyInfo min_cut_strategy{
    .name = "min_cut",
    .family = Family::rematerialization,
    .summary = "saves the fewest bytes from which the backward's inputs can be made again, by a minimum cut",
    .source = "PyTorch, torch/_functorch/partitioners.py: the min-cut recomputation partitioner",
    .chains_only = false,
    .options = min_cut_options,
    .tapes = min_cut_tapes,
    .candidates = min_cut_candidates,
};

}  // namespace plimsoll
