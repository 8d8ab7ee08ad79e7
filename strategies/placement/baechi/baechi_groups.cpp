// Source: Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020. There groups grow without
// limit; here not over a processor's share of the time, since the backward of a model without branches, where each op
// has one reader, would be one group else.

#include "strategies/placement/baechi/baechi_groups.h"

#include <algorithm>
#include <map>

#include "strategies/placement/clusters/node_sets.h"
#include "strategies/placement/lists/levels.h"

namespace plimsoll {
namespace {

/// By node: a number for the set of classes that can run it.
std::vector<std::size_t> runnable_kinds(const OpDag& dag) {
  std::map<std::vector<bool>, std::size_t> known;
  std::vector<std::size_t> kind(dag.size);
  std::vector<bool> runs(dag.time.size());
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (std::size_t c = 0; c < dag.time.size(); ++c) runs[c] = dag.time[c][v] != cannot_run;
    kind[v] = known.try_emplace(runs, known.size()).first->second;
  }
  return kind;
}

/// The only node that reads what it makes; no_node: none or several.
std::uint32_t only_reader(const OpDag& dag, std::uint32_t v) {
  std::uint32_t reader = no_node;
  for (const DagEdge& edge : dag.out[v]) {
    if (!edge.sends) continue;
    if (reader != no_node) return no_node;
    reader = edge.node;
  }
  return reader;
}

}  // namespace

std::vector<std::uint32_t> co_placed(const OpDag& dag, const Machine& machine) {
  NodeSets sets(dag.size);
  std::vector<Nanoseconds> time = mean_times(dag, machine);
  std::vector<std::int64_t> resident(dag.size, 0);
  const auto join = [&](std::uint32_t a, std::uint32_t b) {
    const std::uint32_t into = std::min(a, b), other = std::max(a, b);
    if (into == other) return;
    time[into] += time[other];
    resident[into] += resident[other];
    sets.join(into, other);
  };
  const Nanoseconds share =
      std::accumulate(time.begin(), time.end(), Nanoseconds{0}) / static_cast<Nanoseconds>(machine.size());
  const std::int64_t most_bytes = std::ranges::max(machine.memory);
  for (const std::vector<std::uint32_t>& group : dag.together) {
    for (const std::uint32_t v : group) join(sets.find(group.front()), sets.find(v));
  }
  for (const DagResident& each : dag.residents) {
    std::uint32_t before = no_node;
    for (const std::uint32_t v : each.users) {
      const std::uint32_t set = sets.find(v);
      if (set != before) resident[set] += each.bytes;
      before = set;
    }
  }
  const std::vector<std::size_t> kind = runnable_kinds(dag);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    const std::uint32_t reader = only_reader(dag, v);
    if (reader == no_node || kind[v] != kind[reader]) continue;
    const std::uint32_t a = sets.find(v), b = sets.find(reader);
    if (a == b || time[a] + time[b] > share || resident[a] + resident[b] > most_bytes) continue;
    join(a, b);
  }
  std::vector<std::uint32_t> group(dag.size);
  for (std::uint32_t v = 0; v < dag.size; ++v) group[v] = sets.find(v);
  return group;
}

}  // namespace plimsoll
