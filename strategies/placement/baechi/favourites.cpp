// With x = 0 for the edge to a favourite child and x = 1 for one whose value is sent:
//   min w;  s_i + p_i + c_ij x_ij <= s_j;  s_i + p_i <= w;
//   sum over readers j of (1 - x_ij) <= 1;  sum over makers i of (1 - x_ij) <= 1;  0 <= x <= 1
// An edge is a favourite where x < 1/2. At most one edge of a node can be below in an exact solution, so that rounding
// keeps both sums; since the solver's is not exact, edges are taken by x, ascending, while both ends are free.
// Source: Hanen, Munier, "An approximation algorithm for scheduling dependent tasks on m processors with small
// communication delays", 1995 (the program); Jeon et al., "Baechi", SoCC 2020 (its use).

#include "strategies/placement/baechi/favourites.h"

#include <algorithm>
#include <tuple>

#include "strategies/placement/lists/levels.h"
#include "strategies/solve/milp.h"

namespace plimsoll {
namespace {

struct SendingEdge {
  std::uint32_t from, to;
  Nanoseconds transfer;
  double sent = 1;  // x
};

std::vector<SendingEdge> sending_edges(const OpDag& dag, const Machine& machine) {
  std::vector<SendingEdge> edges;
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (const DagEdge& edge : dag.out[v]) {
      if (edge.sends) edges.push_back({v, edge.node, machine.mean_transfer(edge.bytes)});
    }
  }
  return edges;
}

std::vector<std::uint32_t> first_free_pairs(const OpDag& dag, std::span<const SendingEdge> edges) {
  std::vector<std::uint32_t> child(dag.size, no_node);
  std::vector<bool> has_parent(dag.size, false);
  for (const SendingEdge& edge : edges) {
    if (child[edge.from] != no_node || has_parent[edge.to]) continue;
    child[edge.from] = edge.to;
    has_parent[edge.to] = true;
  }
  return child;
}

void at_most_one_favourite(LinearProgram& program, const std::vector<std::vector<std::size_t>>& edges_of) {
  for (const std::vector<std::size_t>& edges : edges_of) {
    if (edges.size() < 2) continue;
    LinearProgram::Terms terms;
    for (const std::size_t edge : edges) terms.push_back({edge, 1});
    program.row(std::move(terms), static_cast<double>(edges.size() - 1), unbounded);
  }
}

}  // namespace

std::vector<std::uint32_t> favourites_by_program(const OpDag& dag, const Machine& machine, double seconds) {
  std::vector<SendingEdge> edges = sending_edges(dag, machine);
  const std::vector<Nanoseconds> time = mean_times(dag, machine);
  Nanoseconds longest = 1;
  for (const Nanoseconds each : time) longest = std::max(longest, each);
  const auto scaled = [&](Nanoseconds each) { return static_cast<double>(each) / static_cast<double>(longest); };

  LinearProgram program;
  std::vector<std::vector<std::size_t>> from(dag.size), to(dag.size);
  for (const SendingEdge& edge : edges) {
    const std::size_t x = program.variable({});
    from[edge.from].push_back(x);
    to[edge.to].push_back(x);
  }
  std::vector<std::size_t> start;
  for (std::uint32_t v = 0; v < dag.size; ++v) start.push_back(program.variable({.upper = unbounded}));
  const std::size_t makespan = program.variable({.cost = 1, .upper = unbounded});
  for (std::size_t e = 0; e < edges.size(); ++e) {
    const SendingEdge& edge = edges[e];
    program.row({{start[edge.to], 1}, {start[edge.from], -1}, {e, -scaled(edge.transfer)}}, scaled(time[edge.from]),
                unbounded);
  }
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    program.row({{makespan, 1}, {start[v], -1}}, scaled(time[v]), unbounded);
    for (const DagEdge& edge : dag.out[v]) {
      if (!edge.sends) program.row({{start[edge.node], 1}, {start[v], -1}}, scaled(time[v]), unbounded);
    }
  }
  at_most_one_favourite(program, from);
  at_most_one_favourite(program, to);
  const std::optional<std::vector<double>> values = Relaxation(program, seconds).solve();
  if (!values) return {};
  for (std::size_t e = 0; e < edges.size(); ++e) edges[e].sent = (*values)[e];
  constexpr double half = 0.5;
  std::erase_if(edges, [](const SendingEdge& edge) { return !(edge.sent < half); });
  std::ranges::stable_sort(edges, {}, &SendingEdge::sent);
  return first_free_pairs(dag, edges);
}

std::vector<std::uint32_t> favourites_by_transfer(const OpDag& dag, const Machine& machine) {
  std::vector<SendingEdge> edges = sending_edges(dag, machine);
  std::ranges::stable_sort(edges, std::ranges::greater{}, &SendingEdge::transfer);
  return first_free_pairs(dag, edges);
}

Favourites favourite_children(const OpDag& dag, const Machine& machine) {
  std::size_t size = dag.size;
  for (const DagEdge& edge : dag.out.items) size += edge.sends ? 1 : 0;
  if (size <= largest_favourite_program) {
    constexpr double seconds = 60;  // far more than it takes
    std::vector<std::uint32_t> child = favourites_by_program(dag, machine, seconds);
    if (child.size() == dag.size) return {std::move(child), true};
  }
  return {favourites_by_transfer(dag, machine), false};
}

}  // namespace plimsoll
