// The strategy `ideals`: the contiguous split among the devices whose fullest one has the least to do, by a dynamic
// program over the sets of ops that may come first, placed as it is.
//   load(device) = times of its ops + what it sends and receives, once an op
// Source: Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators", NeurIPS 2020.

#include <algorithm>

#include "strategies/pipelining/planners/ideals.h"
#include "strategies/placement/placing.h"
#include "strategies/placement/units.h"

namespace plimsoll {
namespace {

// The contiguous split of the least maximum load, as a placement.

/// Nodes that share a device get one number: groups; the users of one parameter; what reads nothing, with its first
/// reader or, without one, with the node before it; and each backward op with the forward
/// op that it belongs to, so that only the forward is cut: the last of those that made what it reads or, where it reads
/// gradients alone, that of an op that reads its own.
class CutTogether {
 public:
  explicit CutTogether(const OpDag& dag) : number_(dag.size), has_forward_(dag.size) {
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      number_[v] = v;
      has_forward_[v] = dag.backward.empty() || !dag.backward[v];
    }
    for (const std::vector<std::uint32_t>& group : dag.together) join_all(group);
    for (const DagResident& resident : dag.residents) join_all(resident.users);
    for (std::uint32_t v = 1; v < dag.size; ++v) {
      if (dag.reads[v].empty()) join(v, dag.out[v].empty() ? v - 1 : dag.out[v].front().node);
    }
    for (std::uint32_t v = dag.size; v-- > 0;) {
      if (!has_forward_[find(v)]) join_forward(dag, v);
    }
    for (std::uint32_t v = 0; v < dag.size; ++v) number_[v] = find(v);
  }

  const std::vector<std::uint32_t>& numbers() const { return number_; }

 private:
  std::uint32_t find(std::uint32_t v) {
    while (number_[v] != v) v = number_[v] = number_[number_[v]];
    return v;
  }

  void join(std::uint32_t a, std::uint32_t b) {
    a = find(a);
    b = find(b);
    number_[std::max(a, b)] = std::min(a, b);
    has_forward_[std::min(a, b)] = has_forward_[a] || has_forward_[b];
  }

  void join_all(const std::vector<std::uint32_t>& nodes) {
    for (const std::uint32_t v : nodes) join(nodes.front(), v);
  }

  void join_forward(const OpDag& dag, std::uint32_t v) {
    const auto is_forward = [&](const DagEdge& edge) { return !dag.backward[edge.node]; };
    const auto edges = dag.in[v];
    const auto last = std::find_if(edges.rbegin(), edges.rend(), is_forward);
    if (last != edges.rend()) return join(v, last->node);
    if (!dag.out[v].empty()) join(v, dag.out[v].front().node);
  }

  std::vector<std::uint32_t> number_;
  std::vector<bool> has_forward_;  // by number
};

IdealsProblem problem_for(const OpDag& dag, const Machine& machine, const Units& units) {
  constexpr double per_second = 1e9;
  IdealsProblem problem;
  problem.devices = static_cast<std::uint32_t>(units.field.size());
  problem.hosts = machine.has_host ? 1 : 0;
  std::int64_t least = unlimited_bytes;
  for (const std::uint32_t p : units.field) least = std::min(least, machine.memory[p]);
  if (least != unlimited_bytes) problem.device_bytes = static_cast<double>(least);
  const std::vector<std::uint32_t> number = CutTogether(dag).numbers();
  std::vector<std::size_t> members(dag.size, 0);
  for (const std::uint32_t n : number) ++members[n];
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    IdealsProblem::Node& node = problem.nodes.emplace_back();
    const double seconds = static_cast<double>(mean_time(dag, machine, v)) / per_second;
    (units.is_free[units.of[v]] ? node.device : node.host) = seconds;
    node.backward = !dag.backward.empty() && dag.backward[v];
    if (members[number[v]] > 1) node.together = number[v];
    std::int64_t sent = 0;
    for (const std::uint32_t value : dag.makes[v]) {
      node.bytes += static_cast<double>(dag.values[value].bytes);
      if (!dag.values[value].readers.empty()) sent += dag.values[value].bytes;
    }
    if (sent > 0) node.sent = static_cast<double>(machine.mean_transfer(sent)) / per_second;
    for (const DagEdge& edge : dag.out[v]) problem.edges.emplace_back(v, edge.node);
  }
  for (const DagResident& resident : dag.residents) {
    problem.nodes[resident.users.front()].bytes += static_cast<double>(resident.bytes);
  }
  return problem;
}

/// Times and transfers are means, memory is static: parameters and all outputs of a device's ops are within the least
/// of the devices' memories. What uses one parameter shares a device. Infeasible also where there are too many sets of
/// ops that may come first.
PlacementOutcome place_ideals(const OpDag& dag, const Machine& machine) {
  std::variant<Units, Infeasible> made = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&made)) return std::move(*none);
  const Units& units = std::get<Units>(made);
  const IdealsOutcome outcome = plan_ideals(problem_for(dag, machine, units));
  if (!outcome.plan) return Infeasible{outcome.reason, std::nullopt};
  Placement placement{std::vector<std::uint32_t>(dag.size, 0), {}};
  std::size_t next = 0;
  for (const IdealsPlan::Set& set : outcome.plan->sets) {
    const auto p = set.host ? static_cast<std::uint32_t>(machine.size() - 1) : units.field[next++];
    for (const std::uint32_t v : set.nodes) placement.on[v] = p;
  }
  return placement;
}

}  // namespace

extern constinit const StrategyInfo ideals_strategy{
    .name = "ideals",
    .family = Family::placement,
    .summary = "the contiguous split whose fullest device has the least to compute, send and receive",
    .source = "Tarnawski et al., NeurIPS 2020",
    .options = filling_options,
    .kind = placed_within<ideals_strategy, place_ideals>,
};

}  // namespace plimsoll
