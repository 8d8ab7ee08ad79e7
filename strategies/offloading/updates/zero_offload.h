#pragma once
// The strategy `zero_offload`: optimizer states on the host; gradients leave during the backward, the host's processor
// updates its copy of the parameters, which come back. Source: Ren, Rajbhandari, Aminabadi, Ruwase, Yang, Zhang, Li,
// He, "ZeRO-Offload: democratizing billion-scale model training", USENIX ATC 2021.

#include <array>

#include "strategies/offloading/updates/overlap_option.h"

namespace plimsoll {

std::vector<TapeOutcome> zero_offload_tapes(const PartTask&, const Options&,
                                            std::span<const std::optional<Bytes>> budgets, const Tape* before);

inline constexpr std::array zero_offload_options{overlap_option};

inline constexpr StrategyInfo zero_offload_strategy{
    .name = "zero_offload",
    .family = Family::offloading,
    .summary = "keeps optimizer states on the host and updates parameters there",
    .source = "Ren et al., 'ZeRO-Offload: democratizing billion-scale model training', USENIX ATC 2021",
    .chains_only = false,
    .options = zero_offload_options,
    .tapes = zero_offload_tapes,
    .candidates = nullptr,
    .needs_updates = true,
    .moves_parameters = true,
};

}  // namespace plimsoll
