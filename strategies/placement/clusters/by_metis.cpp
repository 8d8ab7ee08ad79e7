#include "strategies/placement/partitions.h"

namespace plimsoll {
namespace {

constexpr auto metis_options =
    options_of<SeededOptions>(place_on_option, homes_option, queue_option, partition_seed_option);

std::vector<PartitionOutcome> metis_partition(const Problem& problem, const SeededOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const std::int32_t seed = options.seed;
  return placed(problem, options, "metis", budgets, false,
                [seed](const OpDag& dag, const Machine& machine) { return place_by_metis(dag, machine, seed); });
}

}  // namespace

PlacementOutcome place_by_metis(const OpDag& dag, const Machine& machine, std::int32_t seed) {
  return place_by_library("metis", dag, machine, seed);
}

extern constinit const StrategyInfo metis_strategy{
    .name = "metis",
    .family = Family::placement,
    .summary = "METIS's parts of the undirected graph: about equal work, little to send",
    .source =
        "Karypis, Kumar, 'Multilevel k-way partitioning scheme for irregular graphs', J. Parallel Distrib. Comput. "
        "48(1), 1998",
    .options = metis_options,
    .kind = PartitionStrategy{.partition = by_options<metis_partition>},
};

}  // namespace plimsoll
