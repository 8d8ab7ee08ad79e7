#include <algorithm>

#include "sim/core/expects.h"
#include "strategies/placement/clusters/acyclic_matching.h"
#include "strategies/placement/ordered_parts.h"
#include "strategies/placement/partitions.h"
#include "strategies/placement/units.h"

// Pairs of vertices become one, again and again, without making circles; the small graph is cut into parts one after
// the other; and the parts are improved while the pairs come apart again.
// Source: Herrmann, Ozkaya, Ucar, Kaya, Catalyurek, "Multilevel algorithms for acyclic partitioning of directed acyclic
// graphs", SIAM J. Scientific Computing 41(4), 2019. Parts are counted in values here, not in edges.

namespace plimsoll {
namespace {

constexpr auto acyclic_options =
    options_of<SeededOptions>(place_on_option, homes_option, queue_option, partition_seed_option);

std::vector<PartitionOutcome> acyclic_partition(const Problem& problem, const SeededOptions& options,
                                                std::span<const std::optional<Bytes>> budgets) {
  const std::int32_t seed = options.seed;
  return placed(problem, options, "acyclic", budgets, false,
                [seed](const OpDag& dag, const Machine& machine) { return place_acyclic(dag, machine, seed); });
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

extern constinit const StrategyInfo acyclic_strategy{
    .name = "acyclic",
    .family = Family::placement,
    .summary = "parts of about equal work that do not wait for each other in a circle, with little to send",
    .source =
        "Herrmann, Ozkaya, Ucar, Kaya, Catalyurek, 'Multilevel algorithms for acyclic partitioning of directed "
        "acyclic graphs', SIAM J. Scientific Computing 41(4), 2019",
    .options = acyclic_options,
    .kind = PartitionStrategy{.partition = by_options<acyclic_partition>},
};

}  // namespace plimsoll
