#include "strategies/placement/placing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/placement/emulation.h"
#include "strategies/placement/graph_dag.h"
#include "strategies/placement/placed_parts.h"

namespace plimsoll {
std::uint32_t devices_for(const Problem& problem, const PlacingOptions& options, std::string_view strategy) {
  const std::size_t there = problem.platform.devices.size();
  constexpr std::size_t most = 1024;  // a route for each pair of them
  if (!options.devices) {
    if (there <= most) return static_cast<std::uint32_t>(there);
    throw InputError(fmt::format("{}: platform '{}' has {} devices, and placements are for up to {}: say devices=...",
                                 strategy, problem.platform.name, there, most));
  }
  const std::size_t asked = *options.devices;
  if (asked > there) {
    throw InputError(fmt::format("{}(devices={}): platform '{}' has {} device{}", strategy, asked,
                                 problem.platform.name, there, there == 1 ? "" : "s"));
  }
  return static_cast<std::uint32_t>(asked);
}

namespace {

void expect_kept(const OpDag& dag, const Machine& machine, const Placement& placement) {
  EXPECTS(placement.on.size() == dag.size);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    EXPECTS(placement.on[v] < machine.size());
    EXPECTS(time_on(dag, machine, v, placement.on[v]) != cannot_run);
  }
  for (const std::vector<std::uint32_t>& group : dag.together) {
    for (const std::uint32_t v : group) EXPECTS(placement.on[v] == placement.on[group.front()]);
  }
}

/// In the order that is asked for; its note says what all orders would take.
struct Ordered {
  Emulation taken;
  std::string note;
};

Ordered ordered(const OpDag& dag, const Machine& machine, const Placement& placement, const PlacingOptions& options) {
  constexpr double per_second = 1e9;
  Ordered made;
  const auto consider = [&](AskedOrder order, std::string_view name, Emulation emulated) {
    const double seconds = static_cast<double>(emulated.makespan) / per_second;
    made.note +=
        fmt::format("{}{} {:.4g} s", made.note.empty() ? "without contention: in order " : ", ", name, seconds);
    if (order == options.order) made.taken = std::move(emulated);
  };
  if (!placement.order.empty()) consider(AskedOrder::own, "own", emulate_in_order(dag, machine, placement));
  consider(AskedOrder::fifo, "fifo", emulate(dag, machine, placement.on, QueueOrder::fifo));
  consider(AskedOrder::b_level, "b_level", emulate(dag, machine, placement.on, QueueOrder::b_level));
  EXPECTS(made.taken.order.size() == machine.size());
  return made;
}

/// A group whose parameters and gradients are more than any of the devices has.
void refuse_large_groups(const Problem& problem, const GraphDag& graph) {
  const OpDag& dag = graph.dag;
  std::int64_t largest = 0;
  for (std::size_t d = 0; d < graph.classes.of.size(); ++d) {
    const std::optional<Bytes> capacity = problem.platform[problem.platform.devices[d].memory].capacity;
    largest = std::max(largest, capacity ? capacity->count : unlimited_bytes);
  }
  std::vector<std::int64_t> kept(dag.together.size(), 0);
  for (const DagResident& resident : dag.residents) {
    const std::uint32_t group = dag.group[resident.users.front()];
    if (group != no_node) kept[group] += resident.bytes;
  }
  for (std::size_t g = 0; g < kept.size(); ++g) {
    if (kept[g] <= largest) continue;
    const Op& one = problem.graph[graph.op[dag.together[g].front()]];
    throw InputError(
        fmt::format("'{}' and the {} ops that share its device keep {} B there, more than any device of "
                    "'{}' has ({} B); parameters=copies may let them go apart",
                    one.name, dag.together[g].size() - 1, kept[g], problem.platform.name, largest));
  }
}

PartitionOutcome planned(const Problem& problem, const PlacingOptions& options, const GraphDag& graph,
                         const Machine& machine, const PlacementPlanner& planner) {
  PlacementOutcome outcome = planner(graph.dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&outcome)) return std::move(*none);
  const Placement& placement = std::get<Placement>(outcome);
  expect_kept(graph.dag, machine, placement);
  const Ordered order = ordered(graph.dag, machine, placement, options);
  Partition partition = placed_parts(problem, graph, placement.on, order.taken);
  partition.note = order.note;
  return std::make_shared<const Partition>(std::move(partition));
}

}  // namespace

GraphDag asked_graph(const Problem& problem, const PlacingOptions& options, std::string_view strategy) {
  GraphDag graph = graph_dag(problem, devices_for(problem, options, strategy),
                             options.copies ? ParameterHomes::copies : ParameterHomes::together);
  refuse_large_groups(problem, graph);
  return graph;
}

std::vector<PartitionOutcome> placed(const Problem& problem, const PlacingOptions& options, std::string_view strategy,
                                     std::span<const std::optional<Bytes>> budgets, bool heeds_memory,
                                     const PlacementPlanner& planner) {
  const GraphDag graph = asked_graph(problem, options, strategy);
  const double usable = heeds_memory ? options.usable : 1;
  std::map<std::vector<std::int64_t>, PartitionOutcome> made;  // by memory of the machine
  std::vector<PartitionOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    const Machine machine = machine_of(problem, graph, heeds_memory ? budget : std::nullopt, usable);
    auto found = made.find(machine.memory);
    if (found == made.end()) {
      PartitionOutcome outcome = planned(problem, options, graph, machine, planner);
      Infeasible* none = std::get_if<Infeasible>(&outcome);
      if (none != nullptr && none->smallest) none->smallest = budget_that_leaves(problem, *none->smallest, usable);
      found = made.emplace(machine.memory, std::move(outcome)).first;
    }
    outcomes.push_back(found->second);
  }
  return outcomes;
}

}  // namespace plimsoll
