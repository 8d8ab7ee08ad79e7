#pragma once
// Chen's segments on a graph: cut the forwards between two ops, keep what crosses a cut, and make the rest again for
// the backward, except after the last cut. A cut that only one value crosses is at an articulation point. Source: Chen,
// Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, sections 4 and 4.1 (algorithm 3); on
// articulation points and linearised graphs as baselines: Jain et al., "Checkmate", 2020, section 6.

#include <optional>
#include <string_view>
#include <vector>

#include "strategies/api/options.h"
#include "strategies/api/strategy.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {

enum class Points : std::uint8_t { articulation, all };

/// Ops after which the forwards may be cut, ascending.
std::vector<std::size_t> cut_points(const OpModel&, Points);

/// Cuts at about sqrt(n) equal distances among n points; the square root is rounded.
std::vector<std::size_t> sqrt_cuts(const std::vector<std::size_t>& points);

/// A cut at the first point where more than `limit` bytes have been made since the cut before.
std::vector<std::size_t> greedy_cuts(const OpModel&, const std::vector<std::size_t>& points, Bytes limit);

/// What is evicted if what crosses the cuts is kept.
Evicted evicted_between(const OpModel&, const std::vector<std::size_t>& cuts);

struct PointsOptions {
  Points points = Points::articulation;
};

inline constexpr auto points_option = option_of<&PointsOptions::points>({
    .name = "points",
    .words = "articulation all",
    .help =
        "where the forward may be cut: articulation: where only one value crosses; all: between any two ops, and all "
        "values that cross are kept",
});

// The strategy `ap_greedy`: Chen's greedy segments on a graph, of every size of segments.

/// Adds the plans of all segment sizes that are tried.
void add_greedy_segments(PlanPool&, const OpModel&, Points);

}  // namespace plimsoll
