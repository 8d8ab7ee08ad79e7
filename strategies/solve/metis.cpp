#include <metis.h>

#include "strategies/solve/graph_partition.h"

namespace plimsoll {
namespace {

static_assert(IDXTYPEWIDTH == 32, "graphs are handed over in METIS's own integers");

/// Multilevel k-way partitioning into parts of at most 1.03 times their shares, as its manual describes.
std::optional<std::vector<std::int32_t>> parts_by_metis(const WeightedGraph& graph, std::span<const double> shares,
                                                        std::int32_t seed) {
  constexpr idx_t unset = -1;
  WeightedGraph own = graph;  // METIS takes pointers to what it does not change
  idx_t nodes = static_cast<idx_t>(graph.size()), balances = 1, parts = static_cast<idx_t>(shares.size()), cut = 0;
  std::vector<real_t> targets;
  for (const double share : shares) targets.push_back(static_cast<real_t>(share));
  std::vector<idx_t> options(METIS_NOPTIONS), part(graph.size(), unset);
  METIS_SetDefaultOptions(options.data());
  options[METIS_OPTION_SEED] = seed;
  options[METIS_OPTION_NUMBERING] = 0;
  const int answer =
      METIS_PartGraphKway(&nodes, &balances, own.first.data(), own.neighbour.data(), own.weight.data(), nullptr,
                          own.edge_weight.data(), &parts, targets.data(), nullptr, options.data(), &cut, part.data());
  if (answer != METIS_OK) return std::nullopt;
  return part;
}

}  // namespace
}  // namespace plimsoll

extern "C" {
extern const plimsoll::GraphPartitioner plimsoll_metis;
const plimsoll::GraphPartitioner plimsoll_metis{"METIS", &plimsoll::parts_by_metis};
}
