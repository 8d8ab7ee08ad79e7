#pragma once
// The strategy `capuchin`: measure one iteration; evict what is idle at the peak, most free time first, by copying it
// to the host while copies hide, and by recomputation where that costs less; let feedback move prefetches forward.
// Source: Peng, Shi, Dai, Jin, Ma, Xiong, Yang, Qian, "Capuchin: tensor-based GPU memory management for deep learning",
// ASPLOS 2020.

#include <array>

#include "strategies/offloading/activations/offload_levels.h"

namespace plimsoll {

std::vector<TapeOutcome> capuchin_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                        const Tape* before);

std::vector<Bytes> capuchin_candidates(const PartTask&, const Options&);

inline constexpr std::array capuchin_options{
    OptionInfo{
        .name = "recompute",
        .default_value = "auto",
        .values = "auto, on or off",
        .help =
            "on: recompute where that costs less than a copy; off: copy only; auto: the faster of both; a tape of a "
            "pass before is not recomputed further",
        .allowed = [](std::string_view text) { return text == "auto" || text == "on" || text == "off"; },
    },
    levels_option,
};

inline constexpr StrategyInfo capuchin_strategy{
    .name = "capuchin",
    .family = Family::offloading,
    .summary = "offloads by the free time of a measured iteration, with feedback, and recomputes where that costs less",
    .source = "Peng, Shi, Dai, Jin, Ma, Xiong, Yang, Qian, \"Capuchin\", ASPLOS 2020",
    .chains_only = false,
    .options = capuchin_options,
    .tapes = capuchin_tapes,
    .candidates = capuchin_candidates,
};

}  // namespace plimsoll
