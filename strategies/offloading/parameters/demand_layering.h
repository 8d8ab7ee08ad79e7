#pragma once
// The strategy `demand_layering`: parameters live on the host or a disk and stream to the device layer by layer, ahead
// of their use in the forward and again in the backward. Source: Ji, Lee, Kim, Kim, Ahn, Kim, Kim, "Demand Layering for
// real-time DNN inference with minimized memory usage", RTSS 2022; the backward and the updates are own.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/offloading/updates/overlap_option.h"

namespace plimsoll {

std::vector<TapeOutcome> demand_layering_tapes(const PartTask&, const Options&,
                                               std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> demand_layering_candidates(const PartTask&, const Options&);

inline constexpr std::array demand_layering_options{
    OptionInfo{
        .name = "lead",
        .default_value = "auto",
        .values = "auto or a whole number",
        .help = "layers between the one after which a layer's parameters begin to arrive and the layer itself: 0 is on "
                "demand, 1 two buffers, 2 three; auto: the lead that is the fastest within the budget",
        .allowed = [](std::string_view text) { return text == "auto" || integer_between<0, 1'000'000>(text); },
    },
    OptionInfo{
        .name = "from",
        .default_value = "host",
        .values = "host or disk",
        .help =
            "where parameters and optimizer states live; from a disk they pass through the host, with the same lead",
        .allowed = [](std::string_view text) { return text == "host" || text == "disk"; },
    },
    overlap_option};

inline constexpr StrategyInfo demand_layering_strategy{
    .name = "demand_layering",
    .family = Family::offloading,
    .summary = "streams parameters to the device layer by layer, and updates them on the host",
    .source = "Ji et al., 'Demand Layering for real-time DNN inference with minimized memory usage', RTSS 2022",
    .chains_only = false,
    .options = demand_layering_options,
    .tapes = demand_layering_tapes,
    .candidates = demand_layering_candidates,
    .moves_parameters = true,
};

}  // namespace plimsoll
