#pragma once
// Planners of placements that cut the graph into parts of about equal work with little to send between them. Shares of
// work are as processors are fast; what the chosen processors cannot run goes to the least loaded one that can, and a
// processor without memory gets nothing. None decides orders.

#include <string>

#include "strategies/placement/placing.h"

namespace plimsoll {

/// Parts of the undirected graph by METIS. Infeasible where its answer is not one.
PlacementOutcome place_by_metis(const OpDag&, const Machine&, std::int32_t seed);

/// Likewise by Scotch.
PlacementOutcome place_by_scotch(const OpDag&, const Machine&, std::int32_t seed);

/// By the library of that name (solvers/graph_partition.h).
PlacementOutcome place_by_library(const std::string& library, const OpDag&, const Machine&, std::int32_t seed);

/// Parts that are in the order of their processors: no value goes from one to an earlier one. At most 1.1 times its
/// share of the work on each, where no op and no circle of groups is too large for that. What is not free is apart.
PlacementOutcome place_acyclic(const OpDag&, const Machine&, std::int32_t seed);

struct SeededOptions : PlacingOptions {
  std::int32_t seed = 1;
};

inline constexpr auto partition_seed_option = option_of<&SeededOptions::seed>({
    .name = "seed",
    .least = 1,
    .most = 1'000'000,
    .help = "seed of the method's random decisions; the same seed gives the same parts",
});

}  // namespace plimsoll
