#pragma once
// The strategy `dtr`: dynamic tensor rematerialization (dtr_runtime.h) of a graph, run at every budget of a fixed
// ladder; the plan is the fastest of these runs that fits.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/rematerialization/dtr/dtr_heuristic.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> dtr_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                   const Tape* before);

std::vector<Bytes> dtr_candidates(const PartTask&, const Options&);

inline constexpr std::array dtr_options{
    OptionInfo{
        .name = "heuristic",
        .default_value = "dtr",
        .values = "dtr, dtr_eq, local, lru, size, msps or random",
        .help =
            "what an eviction costs: dtr_eq is dtr with sums that are cheaper to keep, local looks at no neighbours",
        .allowed = [](std::string_view text) { return dtr_heuristic(text).has_value(); },
    },
    OptionInfo{
        .name = "release",
        .default_value = "evict",
        .values = "evict or banish",
        .help =
            "what becomes of a value nobody refers to any more: evicted, it may be computed again; banished, never, "
            "so that what was made of it stays (heuristic local, lru, size or random)",
        .allowed = [](std::string_view text) { return text == "evict" || text == "banish"; },
    },
    OptionInfo{
        .name = "seed",
        .default_value = "0",
        .values = "a whole number from 0 to 1000000000",
        .help = "of heuristic=random",
        .allowed = [](std::string_view text) { return integer_between<0, 1'000'000'000>(text); },
    }};

inline constexpr StrategyInfo dtr_strategy{
    .name = "dtr",
    .family = Family::rematerialization,
    .summary = "dynamic tensor rematerialization: online, evicts the value that seems cheapest when room is needed",
    .source =
        "Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, 'Dynamic Tensor Rematerialization', 2021",
    .chains_only = false,
    .options = dtr_options,
    .tapes = dtr_tapes,
    .candidates = dtr_candidates,
};

}  // namespace plimsoll
