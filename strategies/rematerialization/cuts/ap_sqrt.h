#pragma once
// The strategy `ap_sqrt`: Chen's sqrt(n) on a graph (ap_points.h).

#include <array>

#include "strategies/rematerialization/cuts/ap_points.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> ap_sqrt_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                       const Tape* before);

inline constexpr OptionInfo points_option{
    .name = "points",
    .default_value = "articulation",
    .values = "articulation or all",
    .help = "where the forwards may be cut: where one value crosses, or anywhere, and then all that crosses is kept",
    .allowed = is_points,
};

inline constexpr std::array ap_sqrt_options{points_option};

inline constexpr StrategyInfo ap_sqrt_strategy{
    .name = "ap_sqrt",
    .family = Family::rematerialization,
    .summary = "cuts a graph at sqrt(n) of its articulation points, keeps what crosses, and recomputes the rest",
    .source =
        "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, section 4; on graphs: "
        "Jain et al., 'Checkmate', 2020, section 6",
    .chains_only = false,
    .options = ap_sqrt_options,
    .tapes = ap_sqrt_tapes,
    .candidates = nullptr,
};

}  // namespace plimsoll
