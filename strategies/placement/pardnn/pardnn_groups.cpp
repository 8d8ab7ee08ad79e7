#include "strategies/placement/pardnn/pardnn_groups.h"

#include <algorithm>

#include "strategies/placement/lists/levels.h"
#include "strategies/placement/pardnn/pardnn_exchange.h"

namespace plimsoll {
namespace {

bool is_group(const Units& units, std::uint32_t u) {
  return units.is_free[u] && units.nodes[u].size() > 1;
}

/// Where the other end of the largest of these edges is, of those that are somewhere.
std::uint32_t nearest(std::span<const DagEdge> edges, std::span<const std::uint32_t> on) {
  std::uint32_t found = no_node;
  std::int64_t most = -1;
  for (const DagEdge& edge : edges) {
    if (on[edge.node] == no_node || edge.bytes <= most) continue;
    most = edge.bytes;
    found = on[edge.node];
  }
  return found;
}

}  // namespace

void collocate(const OpDag& dag, const Machine& machine, const Units& units, std::vector<std::uint32_t>& on) {
  Exchanged exchanged(dag, machine, on);
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!is_group(units, u)) continue;
    std::vector<Nanoseconds> score(machine.size(), 0);
    const std::span<const Nanoseconds> with = exchanged.by(units.nodes[u]);
    for (std::size_t p = 0; p < score.size(); ++p) score[p] = with[p];
    for (const std::uint32_t v : units.nodes[u]) score[on[v]] += time_on(dag, machine, v, on[v]);
    std::uint32_t best = units.field.front();
    for (const std::uint32_t p : units.field) best = score[p] > score[best] ? p : best;
    for (const std::uint32_t v : units.nodes[u]) on[v] = best;
  }
}

std::optional<std::vector<std::uint32_t>> near_groups(const OpDag& dag, const Machine& machine, const Units& units) {
  std::vector<std::uint32_t> on(dag.size, no_node);
  std::vector<double> work(units.size(), 0);  // of groups
  double all = 0;
  const std::vector<Nanoseconds> time = mean_times(dag, machine);
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!is_group(units, u)) continue;
    for (const std::uint32_t v : units.nodes[u]) work[u] += static_cast<double>(time[v]);
    all += work[u];
  }
  if (!(all > 0)) return std::nullopt;
  const std::vector<double> share = shares(units);
  std::vector<double> filled(units.field.size(), 0);
  Exchanged exchanged(dag, machine, on);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    const std::uint32_t u = units.of[v];
    if (!is_group(units, u)) {
      on[v] = nearest(dag.in[v], on);
      continue;
    }
    if (on[v] != no_node) continue;
    const std::span<const Nanoseconds> with = exchanged.by(units.nodes[u]);
    std::size_t best = 0, emptiest = 0;
    bool has_room = false;
    const auto filling = [&](std::size_t f) { return (filled[f] + work[u]) / std::max(share[f], 1e-9); };
    for (std::size_t f = 0; f < filled.size(); ++f) {
      if (filling(f) < filling(emptiest)) emptiest = f;
      if (filled[f] + work[u] / 2 > share[f] * all) continue;
      if (has_room && with[units.field[f]] <= with[units.field[best]]) continue;
      best = f;
      has_room = true;
    }
    if (!has_room || with[units.field[best]] == 0) best = emptiest;
    filled[best] += work[u];
    for (const std::uint32_t member : units.nodes[u]) on[member] = units.field[best];
  }
  for (std::uint32_t v = dag.size; v-- > 0;) {
    if (on[v] == no_node) on[v] = nearest(dag.out[v], on);
    if (on[v] == no_node) on[v] = units.field.front();
  }
  return on;
}

}  // namespace plimsoll
