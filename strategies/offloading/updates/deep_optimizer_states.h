#pragma once
// The strategy `deep_optimizer_states`: all states on the host; of every k subgroups of parameters the host updates
// k - 1 while the states of the k-th travel to the device, which updates it. Source: Maurya, Ye, Rafique, Cappello,
// Nicolae, "Deep Optimizer States: towards scalable training of transformer models using interleaved offloading",
// Middleware 2024.

#include <array>

#include "strategies/offloading/updates/overlap_option.h"

namespace plimsoll {

std::vector<TapeOutcome> deep_optimizer_states_tapes(const PartTask&, const Options&,
                                                     std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> deep_optimizer_states_candidates(const PartTask&, const Options&);

bool is_auto_or_size(std::string_view);
bool is_auto_or_stride(std::string_view);

inline constexpr std::array deep_optimizer_states_options{
    OptionInfo{
        .name = "stride",
        .default_value = "auto",
        .values = "auto or a whole number from 1 to 1000",
        .help =
            "every stride-th subgroup is updated on the device (1: all; more than there are: none); auto: the stride "
            "that is fastest within the budget",
        .allowed = is_auto_or_stride,
    },
    OptionInfo{
        .name = "subgroup",
        .default_value = "auto",
        .values = "auto or a size, such as 400MB",
        .help = "updates are taken together until their parameters have so many bytes; auto: each update is a subgroup",
        .allowed = is_auto_or_size,
    },
    OptionInfo{
        .name = "turns",
        .default_value = "on",
        .values = "on or off",
        .help = "on: the host waits while the device updates, as the authors' loop does; off: both update at once",
        .allowed = [](std::string_view text) { return text == "on" || text == "off"; },
    },
    overlap_option};

inline constexpr StrategyInfo deep_optimizer_states_strategy{
    .name = "deep_optimizer_states",
    .family = Family::offloading,
    .summary = "interleaves updates on the host with updates on the device of states that travel there",
    .source = "Maurya et al., 'Deep Optimizer States', Middleware 2024",
    .chains_only = false,
    .options = deep_optimizer_states_options,
    .tapes = deep_optimizer_states_tapes,
    .candidates = deep_optimizer_states_candidates,
    .needs_updates = true,
    .moves_parameters = true,
};

}  // namespace plimsoll
