#pragma once
// The strategy `twinflow`: a fixed share of the updates on the host, the rest on the device with their states.
// Source: "ZeRO-Offload++: TwinFlow", DeepSpeed, 2023.

#include <array>

#include "strategies/offloading/updates/overlap_option.h"

namespace plimsoll {

std::vector<TapeOutcome> twinflow_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                        const Tape* before);

std::vector<Bytes> twinflow_candidates(const PartTask&, const Options&);

bool is_auto_or_percentage(std::string_view);

inline constexpr std::array twinflow_options{
    OptionInfo{
        .name = "host",
        .default_value = "auto",
        .values = "auto or a percentage from 0% to 100%",
        .help = "share of the parameter bytes that the host updates, those first whose gradients come first; auto: the "
                "share that is fastest within the budget",
        .allowed = is_auto_or_percentage,
    },
    overlap_option};

inline constexpr StrategyInfo twinflow_strategy{
    .name = "twinflow",
    .family = Family::offloading,
    .summary = "updates a share of the parameters on the host and the rest on the device",
    .source = "DeepSpeed, 'ZeRO-Offload++: TwinFlow', 2023",
    .chains_only = false,
    .options = twinflow_options,
    .tapes = twinflow_tapes,
    .candidates = twinflow_candidates,
    .needs_updates = true,
    .moves_parameters = true,
};

}  // namespace plimsoll
