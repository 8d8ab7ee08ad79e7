#include "strategies/placement/partitions.h"

namespace plimsoll {
namespace {

constexpr auto scotch_options =
    options_of<SeededOptions>(place_on_option, homes_option, queue_option, partition_seed_option);

std::vector<PartitionOutcome> scotch_partition(const Problem& problem, const SeededOptions& options,
                                               std::span<const std::optional<Bytes>> budgets) {
  const std::int32_t seed = options.seed;
  return placed(problem, options, "scotch", budgets, false,
                [seed](const OpDag& dag, const Machine& machine) { return place_by_scotch(dag, machine, seed); });
}

}  // namespace

PlacementOutcome place_by_scotch(const OpDag& dag, const Machine& machine, std::int32_t seed) {
  return place_by_library("scotch", dag, machine, seed);
}

extern constinit const StrategyInfo scotch_strategy{
    .name = "scotch",
    .family = Family::placement,
    .summary = "Scotch's parts of the undirected graph: about equal work, little to send",
    .source =
        "Pellegrini, Roman, 'Scotch: a software package for static mapping by dual recursive bipartitioning of process "
        "and architecture graphs', HPCN 1996",
    .options = scotch_options,
    .kind = PartitionStrategy{.partition = by_options<scotch_partition>},
};

}  // namespace plimsoll
