#pragma once
// The strategy `superneurons`: values die after their last use; what convolutions make is a cache on the device, from
// which the least recently made leave for the host; what the cheap layers between them make is computed again.
// Source: Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, "SuperNeurons: dynamic GPU memory management for training deep
// neural networks", PPoPP 2018.

#include <array>

#include "strategies/offloading/activations/offload_levels.h"

namespace plimsoll {

std::vector<TapeOutcome> superneurons_tapes(const PartTask&, const Options&,
                                            std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> superneurons_candidates(const PartTask&, const Options&);

inline constexpr std::array superneurons_options{
    OptionInfo{
        .name = "recompute",
        .default_value = "auto",
        .values = "auto, cost_aware, speed, memory or off",
        .help = "of the layers between convolutions: speed: a segment is made again once and kept; memory: for each "
                "backward anew; cost_aware: speed where the segment is no larger than the largest layer; auto: the "
                "fastest within the budget of all",
        .allowed =
            [](std::string_view text) {
              return text == "auto" || text == "cost_aware" || text == "speed" || text == "memory" || text == "off";
            },
    },
    levels_option,
};

inline constexpr StrategyInfo superneurons_strategy{
    .name = "superneurons",
    .family = Family::offloading,
    .summary = "offloads what convolutions make, least recently used first, and recomputes what is between them",
    .source = "Wang, Ye, Zhao, Wu, Li, Song, Xu, Kraska, \"SuperNeurons\", PPoPP 2018",
    .chains_only = false,
    .options = superneurons_options,
    .tapes = superneurons_tapes,
    .candidates = superneurons_candidates,
};

}  // namespace plimsoll
