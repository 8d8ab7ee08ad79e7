// The graph is cut into one part a device, of equal work and with little to send: `metis`, `scotch` and
// `acyclic`.

#include "strategies/placement/clusters/partitioners.h"

#include <algorithm>
#include <cmath>

#include "sim/core/expects.h"
#include "strategies/placement/clusters/acyclic_parts.h"
#include "strategies/placement/units.h"
#include "strategies/solve/graph_partition.h"

namespace plimsoll {
namespace {

constexpr auto partition_options =
    options_of<SeededOptions>(place_on_option, homes_option, queue_option, partition_seed_option);

template <const StrategyInfo& strategy, auto planner>
std::vector<PartitionOutcome> parts_by_seed(const Problem& problem, const SeededOptions& options,
                                            std::span<const std::optional<Bytes>> budgets) {
  return placed(
      problem, options, strategy.name, budgets, false,
      [seed = options.seed](const OpDag& dag, const Machine& machine) { return planner(dag, machine, seed); });
}

/// Units that are free, numbered anew, with the values between them; groups may make circles.
struct FreeNets {
  std::vector<std::uint32_t> unit;    // by vertex
  std::vector<std::uint32_t> vertex;  // by unit; no_node: not free
  NetDag nets;
};

void add_net(FreeNets& free, const Units& units, std::uint32_t maker, std::int64_t bytes,
             std::span<const std::uint32_t> readers) {
  const std::uint32_t from = free.vertex[units.of[maker]];
  if (from == no_node) return;
  std::vector<std::uint32_t> to;
  for (const std::uint32_t r : readers) {
    const std::uint32_t reader = free.vertex[units.of[r]];
    if (reader != no_node && reader != from) to.push_back(reader);
  }
  if (to.empty()) return;
  std::ranges::sort(to);
  to.erase(std::unique(to.begin(), to.end()), to.end());
  free.nets.maker.push_back(from);
  free.nets.bytes.push_back(bytes);
  free.nets.readers.items.insert(free.nets.readers.items.end(), to.begin(), to.end());
  free.nets.readers.end_row();
}

FreeNets free_nets(const OpDag& dag, const Units& units) {
  FreeNets made;
  made.vertex.assign(units.size(), no_node);
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!units.is_free[u]) continue;
    made.vertex[u] = static_cast<std::uint32_t>(made.unit.size());
    made.unit.push_back(u);
    double sum = 0;
    for (const std::uint32_t p : units.field) sum += static_cast<double>(units.time[p][u]);
    made.nets.weight.push_back(static_cast<std::int64_t>(sum / static_cast<double>(units.field.size())));
  }
  for (const DagValue& value : dag.values) {
    if (value.maker != no_node) add_net(made, units, value.maker, value.bytes, value.readers);
  }
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (const DagEdge& edge : dag.out[v]) {
      if (!edge.sends) add_net(made, units, v, 0, std::span(&edge.node, 1));
    }
  }
  list_nets(made.nets);
  return made;
}

/// Until there are some forty vertices a part, or pairs are no longer found.
std::vector<NetContraction> coarsened(const NetDag& finest, std::size_t parts, std::int32_t seed) {
  constexpr std::size_t vertices_of_part = 40;
  constexpr double least_progress = 0.95;
  std::int64_t all = 0;
  for (const std::int64_t weight : finest.weight) all += weight;
  const std::int64_t most = 3 * all / static_cast<std::int64_t>(vertices_of_part * parts);
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  std::vector<NetContraction> levels;
  const NetDag* now = &finest;
  int without_progress = 0;
  LevelsFrom from = LevelsFrom::start;
  while (now->size() > vertices_of_part * parts && without_progress < 2) {
    NetContraction next = contracted(*now, acyclic_matching(*now, from, most, random));
    from = from == LevelsFrom::start ? LevelsFrom::end : LevelsFrom::start;
    const bool is_progress = next.dag.size() < least_progress * now->size();
    without_progress = is_progress ? 0 : without_progress + 1;
    if (!is_progress) continue;
    levels.push_back(std::move(next));
    now = &levels.back().dag;
  }
  return levels;
}

std::vector<std::uint32_t> ordered_parts(const NetDag& finest, std::span<const PartLimit> limits, std::int32_t seed) {
  const std::vector<NetContraction> levels = coarsened(finest, limits.size(), seed);
  std::vector<std::uint32_t> part = grown_parts(levels.empty() ? finest : levels.back().dag, limits);
  for (std::size_t i = levels.size(); i-- > 0;) {
    std::vector<std::uint32_t> finer;
    for (const std::uint32_t coarse : levels[i].of) finer.push_back(part[coarse]);
    part = std::move(finer);
    improve_parts(i == 0 ? finest : levels[i - 1].dag, limits, part);
  }
  for (std::uint32_t n = 0; n < finest.nets(); ++n) {
    for (const std::uint32_t r : finest.readers[n]) EXPECTS(part[finest.maker[n]] <= part[r]);
  }
  return part;
}

// Ops and groups as an undirected graph of 32-bit integers: weights are mean times on the chosen processors, those of
// edges mean transfers, both in nanoseconds, or in so many that all sum to less than 2^30.

constexpr double largest_sum = 1u << 30;

/// In units of which the sum is below `largest_sum`, none less than 1.
std::vector<std::int32_t> scaled(std::span<const double> nanoseconds) {
  double sum = 0;
  for (const double each : nanoseconds) sum += each;
  const double room = largest_sum - static_cast<double>(nanoseconds.size());
  const double scale = sum > room ? room / sum : 1;
  std::vector<std::int32_t> made;
  made.reserve(nanoseconds.size());
  for (const double each : nanoseconds) {
    made.push_back(std::max(1, static_cast<std::int32_t>(std::floor(scale * each))));
  }
  return made;
}

/// Free units, numbered anew.
struct FreeUnits {
  std::vector<std::uint32_t> unit;    // by number
  std::vector<std::uint32_t> number;  // by unit; no_node: not free
};

FreeUnits free_units(const Units& units) {
  FreeUnits made{{}, std::vector<std::uint32_t>(units.size(), no_node)};
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!units.is_free[u]) continue;
    made.number[u] = static_cast<std::uint32_t>(made.unit.size());
    made.unit.push_back(u);
  }
  return made;
}

WeightedGraph undirected(const OpDag& dag, const Machine& machine, const Units& units, const FreeUnits& free) {
  struct Neighbour {
    std::uint32_t number = 0;
    double transfer = 0;
  };
  WeightedGraph made;
  std::vector<double> time, transfer;
  std::vector<Neighbour> row;
  for (const std::uint32_t u : free.unit) {
    double sum = 0;
    for (const std::uint32_t p : units.field) sum += static_cast<double>(units.time[p][u]);
    time.push_back(sum / static_cast<double>(units.field.size()));
    row.clear();
    const auto note = [&](const DagEdge& edge) {
      const std::uint32_t other = units.of[edge.node];
      if (other == u || free.number[other] == no_node) return;
      row.push_back({free.number[other], edge.sends ? static_cast<double>(machine.mean_transfer(edge.bytes)) : 0});
    };
    for (const std::uint32_t v : units.nodes[u]) {
      for (const DagEdge& edge : dag.in[v]) note(edge);
      for (const DagEdge& edge : dag.out[v]) note(edge);
    }
    std::ranges::sort(row, [](const Neighbour& a, const Neighbour& b) {
      return a.number != b.number ? a.number < b.number : a.transfer < b.transfer;  // sums are the same at both ends
    });
    for (const Neighbour& each : row) {
      const bool is_new = made.neighbour.size() == static_cast<std::size_t>(made.first.back()) ||
                          made.neighbour.back() != static_cast<std::int32_t>(each.number);
      if (is_new) {
        made.neighbour.push_back(static_cast<std::int32_t>(each.number));
        transfer.push_back(each.transfer);
      } else {
        transfer.back() += each.transfer;
      }
    }
    made.first.push_back(static_cast<std::int32_t>(made.neighbour.size()));
  }
  made.weight = scaled(time);
  made.edge_weight = scaled(transfer);
  return made;
}

}  // namespace

PlacementOutcome place_acyclic(const OpDag& dag, const Machine& machine, std::int32_t seed) {
  constexpr double imbalance = 1.1;
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  const FreeNets free = free_nets(dag, units);
  double all = 0;
  for (const std::int64_t weight : free.nets.weight) all += static_cast<double>(weight);
  std::vector<std::uint32_t> processors;  // by part
  std::vector<PartLimit> limits;
  const std::vector<double> share = shares(units);
  for (std::size_t i = 0; i < share.size(); ++i) {
    if (share[i] <= 0) continue;
    processors.push_back(units.field[i]);
    limits.push_back({share[i], imbalance * share[i] * all});
  }
  Assignment assignment(units);
  if (!free.unit.empty()) {
    const NetContraction whole = without_circles(free.nets);
    const std::vector<std::uint32_t> part = ordered_parts(whole.dag, limits, seed);
    for (std::size_t v = 0; v < free.unit.size(); ++v) assignment.put(free.unit[v], processors[part[whole.of[v]]]);
  }
  assignment.put_rest();
  return assignment.placement();
}

// Pairs of vertices become one, again and again, without making circles; the small graph is cut into parts one after
// the other; and the parts are improved while the pairs come apart again.
// Source: Herrmann, Ozkaya, Ucar, Kaya, Catalyurek, "Multilevel algorithms for acyclic partitioning of directed acyclic
// graphs", SIAM J. Scientific Computing 41(4), 2019. Parts are counted in values here, not in edges.
extern constinit const StrategyInfo acyclic_strategy{
    .name = "acyclic",
    .family = Family::placement,
    .summary = "parts of about equal work that do not wait for each other in a circle, with little to send",
    .source =
        "Herrmann, Ozkaya, Ucar, Kaya, Catalyurek, 'Multilevel algorithms for acyclic partitioning of directed "
        "acyclic graphs', SIAM J. Scientific Computing 41(4), 2019",
    .options = partition_options,
    .kind = PartitionStrategy{.partition = by_options<parts_by_seed<acyclic_strategy, place_acyclic>>},
};

PlacementOutcome place_by_library(const std::string& library, const OpDag& dag, const Machine& machine,
                                  std::int32_t seed) {
  auto made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  std::vector<std::uint32_t> processors;  // those with a share
  std::vector<double> share;
  const std::vector<double> all_shares = shares(units);
  for (std::size_t i = 0; i < all_shares.size(); ++i) {
    if (all_shares[i] <= 0) continue;
    processors.push_back(units.field[i]);
    share.push_back(all_shares[i]);
  }
  const FreeUnits free = free_units(units);
  Assignment assignment(units);
  if (free.unit.size() <= processors.size()) {  // libraries give nonsense here
    for (std::size_t i = 0; i < free.unit.size(); ++i) assignment.put(free.unit[i], processors[i]);
  } else if (processors.size() == 1) {
    for (const std::uint32_t u : free.unit) assignment.put(u, processors.front());
  } else {
    const WeightedGraph graph = undirected(dag, machine, units, free);
    const GraphParts found = partition_graph(library, graph, share, seed);
    if (const auto* const why = std::get_if<std::string>(&found)) return Infeasible{.reason = *why, .smallest = {}};
    const auto& parts = std::get<std::vector<std::int32_t>>(found);
    for (std::size_t i = 0; i < free.unit.size(); ++i) {
      assignment.put(free.unit[i], processors[static_cast<std::size_t>(parts[i])]);
    }
  }
  assignment.put_rest();
  return assignment.placement();
}

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
    .options = partition_options,
    .kind = PartitionStrategy{.partition = by_options<parts_by_seed<metis_strategy, place_by_metis>>},
};

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
    .options = partition_options,
    .kind = PartitionStrategy{.partition = by_options<parts_by_seed<scotch_strategy, place_by_scotch>>},
};

}  // namespace plimsoll
