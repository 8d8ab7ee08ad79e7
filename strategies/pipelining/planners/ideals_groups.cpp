#include "strategies/pipelining/planners/ideals_groups.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace plimsoll {
namespace {

/// Nodes that were found to belong together, by any of them.
class Unions {
 public:
  explicit Unions(std::size_t count) : parent_(count) { std::iota(parent_.begin(), parent_.end(), 0U); }

  std::uint32_t find(std::uint32_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }
  void join(std::uint32_t a, std::uint32_t b) {
    a = find(a), b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::uint32_t> parent_;
};

/// Groups as nodes of a graph: joined ones are one, numbered by their first member.
struct Contracted {
  std::vector<std::uint32_t> group_of;
  Dag dag;  // without repeated edges
};

Contracted contracted(Unions& unions, std::size_t count,
                      const std::set<std::pair<std::uint32_t, std::uint32_t>>& edges) {
  Contracted made{.group_of = std::vector<std::uint32_t>(count), .dag = {}};
  for (std::uint32_t n = 0; n < count; ++n) {
    const std::uint32_t first = unions.find(n);
    made.group_of[n] = first == n ? made.dag.nodes++ : made.group_of[first];
  }
  std::set<std::pair<std::uint32_t, std::uint32_t>> between;
  for (const auto& [from, to] : edges) {
    if (made.group_of[from] != made.group_of[to]) between.emplace(made.group_of[from], made.group_of[to]);
  }
  made.dag.edges.assign(between.begin(), between.end());
  return made;
}

/// Strongly connected components, each named by one of its nodes (Kosaraju's two searches).
std::vector<std::uint32_t> component_of(const Dag& graph) {
  std::vector<std::vector<std::uint32_t>> after(graph.nodes), before(graph.nodes);
  for (const auto& [from, to] : graph.edges) {
    after[from].push_back(to);
    before[to].push_back(from);
  }
  std::vector<std::uint32_t> left;  // in the order in which a search along the edges leaves the nodes for good
  std::vector<std::size_t> next(graph.nodes, 0);
  std::vector<bool> seen(graph.nodes, false);
  for (std::uint32_t root = 0; root < graph.nodes; ++root) {
    if (seen[root]) continue;
    seen[root] = true;
    for (std::vector<std::uint32_t> path{root}; !path.empty();) {
      const std::uint32_t node = path.back();
      if (next[node] == after[node].size()) {
        left.push_back(node);
        path.pop_back();
      } else if (const std::uint32_t to = after[node][next[node]++]; !seen[to]) {
        seen[to] = true;
        path.push_back(to);
      }
    }
  }
  constexpr std::uint32_t none = ~0U;
  std::vector<std::uint32_t> component(graph.nodes, none);
  for (auto root = left.rbegin(); root != left.rend(); ++root) {
    if (component[*root] != none) continue;
    component[*root] = *root;
    for (std::vector<std::uint32_t> open{*root}; !open.empty();) {
      const std::uint32_t node = open.back();
      open.pop_back();
      for (const std::uint32_t from : before[node]) {
        if (component[from] != none) continue;
        component[from] = *root;
        open.push_back(from);
      }
    }
  }
  return component;
}

/// Joins what has no time of its own with its neighbour, where it has only one.
bool join_idle_ends(const IdealsProblem& problem, const Contracted& graph, Unions& unions) {
  std::vector<double> time(graph.dag.nodes, 0);
  std::vector<std::uint32_t> any(graph.dag.nodes), neighbours(graph.dag.nodes, 0), neighbour(graph.dag.nodes);
  for (std::uint32_t n = 0; n < problem.nodes.size(); ++n) {
    const IdealsProblem::Node& node = problem.nodes[n];
    time[graph.group_of[n]] += node.device.value_or(1) + node.host.value_or(0);
    any[graph.group_of[n]] = n;
  }
  for (const auto& [from, to] : graph.dag.edges) {
    ++neighbours[from];
    ++neighbours[to];
    neighbour[from] = to;
    neighbour[to] = from;
  }
  bool joined = false;
  for (std::uint32_t g = 0; g < graph.dag.nodes; ++g) {
    if (time[g] > 0 || neighbours[g] != 1) continue;
    unions.join(any[g], any[neighbour[g]]);
    joined = true;
  }
  return joined;
}

}  // namespace

NodeGroups groups_of(const IdealsProblem& problem) {
  const std::size_t count = problem.nodes.size();
  Unions unions(count);
  std::map<std::uint32_t, std::uint32_t> first;  // by number
  std::map<std::uint32_t, bool> has_forward;     // by number
  for (std::uint32_t n = 0; n < count; ++n) {
    const IdealsProblem::Node& node = problem.nodes[n];
    if (!node.together) continue;
    const auto [found, is_new] = first.emplace(*node.together, n);
    if (!is_new) unions.join(found->second, n);
    has_forward[*node.together] = has_forward[*node.together] || !node.backward;
  }
  // Whether a node's place in the forward's order is that of a forward node.
  const auto in_forward = [&](std::uint32_t n) {
    const IdealsProblem::Node& node = problem.nodes[n];
    return node.together ? has_forward[*node.together] : !node.backward;
  };
  std::set<std::pair<std::uint32_t, std::uint32_t>> forward;
  for (const auto& [from, to] : problem.edges) {
    const bool back_from = problem.nodes[from].backward, back_to = problem.nodes[to].backward;
    if (!back_from && !back_to) forward.emplace(from, to);
    if (back_from && back_to && (!in_forward(from) || !in_forward(to))) forward.emplace(to, from);
  }
  Contracted graph = contracted(unions, count, forward);
  do {
    const std::vector<std::uint32_t> component = component_of(graph.dag);
    std::vector<std::uint32_t> member(graph.dag.nodes);
    for (std::uint32_t n = 0; n < count; ++n) member[graph.group_of[n]] = n;
    for (std::uint32_t g = 0; g < graph.dag.nodes; ++g) unions.join(member[g], member[component[g]]);
    graph = contracted(unions, count, forward);
  } while (join_idle_ends(problem, graph, unions) && (graph = contracted(unions, count, forward), true));
  NodeGroups groups{.members = std::vector<std::vector<std::uint32_t>>(graph.dag.nodes), .dag = std::move(graph.dag)};
  for (std::uint32_t n = 0; n < count; ++n) groups.members[graph.group_of[n]].push_back(n);
  return groups;
}

}  // namespace plimsoll
