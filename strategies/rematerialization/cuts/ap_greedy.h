#pragma once
// The strategy `ap_greedy`: Chen's greedy segments on a graph (ap_points.h).

#include <array>

#include "strategies/rematerialization/cuts/ap_sqrt.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> ap_greedy_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                         const Tape* before);

std::vector<Bytes> ap_greedy_candidates(const PartTask&, const Options&);

/// Adds the plans of all segment sizes that are tried.
void add_greedy_segments(PlanPool&, const OpModel&, Points);

inline constexpr std::array ap_greedy_options{points_option};

inline constexpr StrategyInfo ap_greedy_strategy{
    .name = "ap_greedy",
    .family = Family::rematerialization,
    .summary =
        "cuts a graph at articulation points after equal bytes, the segment size searched for the budget, and "
        "recomputes",
    .source =
        "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, algorithm 3; on graphs: "
        "Jain et al., 'Checkmate', 2020, section 6",
    .chains_only = false,
    .options = ap_greedy_options,
    .tapes = ap_greedy_tapes,
    .candidates = ap_greedy_candidates,
};

}  // namespace plimsoll
