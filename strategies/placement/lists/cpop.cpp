// The strategy `cpop`: what is on the critical path goes to the one processor that runs it fastest, all else where it
// ends first.
//   priority(v) = longest path to v + longest path from v, with mean times and transfers; equal all along the critical
//   path
// Source: Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
// computing", IEEE TPDS 13(3), 2002, section 4.2. Where no processor runs all of the path, the one that runs most of it
// is taken, and the rest goes where it ends first.

#include <algorithm>
#include <queue>
#include <tuple>

#include "strategies/placement/lists/insertion_schedule.h"
#include "strategies/placement/lists/levels.h"
#include "strategies/placement/lists/list_schedulers.h"

namespace plimsoll {
namespace {

/// From the first of the largest priority along readers of the same.
std::vector<std::uint32_t> critical_path(const OpDag& dag, std::span<const Nanoseconds> priority,
                                         std::span<const Nanoseconds> top) {
  std::vector<std::uint32_t> path;
  if (dag.size == 0) return path;
  const Nanoseconds longest = std::ranges::max(priority);
  std::uint32_t at = no_node;
  for (std::uint32_t v = 0; v < dag.size && at == no_node; ++v) {
    if (priority[v] == longest && top[v] == 0) at = v;
  }
  while (at != no_node) {
    path.push_back(at);
    std::uint32_t next = no_node;
    for (const DagEdge& edge : dag.out[at]) {
      if (priority[edge.node] == longest && next == no_node) next = edge.node;
    }
    at = next;
  }
  return path;
}

std::uint32_t processor_of_path(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> path) {
  std::uint32_t best = 0;
  std::pair<std::size_t, Nanoseconds> least{path.size() + 1, 0};  // nodes that it cannot run, time of the others
  for (std::uint32_t p = 0; p < machine.size(); ++p) {
    std::pair<std::size_t, Nanoseconds> here{0, 0};
    for (const std::uint32_t v : path) {
      if (may_run_on(dag, machine, v, p)) {
        here.second += time_on(dag, machine, v, p);
      } else {
        ++here.first;
      }
    }
    if (here < least) {
      least = here;
      best = p;
    }
  }
  return best;
}

}  // namespace

ListOutcome cpop_schedule(const OpDag& dag, const Machine& machine) {
  const Levels level = mean_levels(dag, machine);
  std::vector<Nanoseconds> priority(dag.size);
  for (std::uint32_t v = 0; v < dag.size; ++v) priority[v] = level.top[v] + level.bottom[v];
  const std::vector<std::uint32_t> path = critical_path(dag, priority, level.top);
  const std::uint32_t on_path = processor_of_path(dag, machine, path);
  std::vector<bool> is_critical(dag.size, false);
  for (const std::uint32_t v : path) is_critical[v] = true;

  using Waiting = std::pair<Nanoseconds, std::uint32_t>;  // the negative of its priority, node
  std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> ready;
  std::vector<std::size_t> waits(dag.size);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    waits[v] = dag.in[v].size();
    if (waits[v] == 0) ready.push({-priority[v], v});
  }
  InsertionSchedule schedule(dag, machine);
  while (!ready.empty()) {
    const std::uint32_t v = ready.top().second;
    ready.pop();
    if (is_critical[v] && schedule.may_take(v, on_path)) {
      schedule.place(v, on_path);
    } else {
      const std::optional<std::uint32_t> processor = schedule.earliest_finish(v);
      if (!processor) return nowhere_to_run();
      schedule.place(v, *processor);
    }
    for (const DagEdge& edge : dag.out[v]) {
      if (--waits[edge.node] == 0) ready.push({-priority[edge.node], edge.node});
    }
  }
  const Nanoseconds makespan = schedule.makespan();
  return ListSchedule{std::move(schedule).placement(), makespan};
}

namespace {

constexpr auto cpop_options = options_of<OwnOrderOptions>(place_on_option, homes_option, own_queue_option);

std::vector<PartitionOutcome> cpop_partition(const Problem& problem, const OwnOrderOptions& options,
                                             std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "cpop", budgets, false,
                [](const OpDag& dag, const Machine& machine) { return without_makespan(cpop_schedule(dag, machine)); });
}

}  // namespace

extern constinit const StrategyInfo cpop_strategy{
    .name = "cpop",
    .family = Family::placement,
    .summary = "puts the critical path on the processor that runs it fastest, all other ops where each ends first",
    .source = "Topcuoglu et al., IEEE TPDS 2002",
    .options = cpop_options,
    .kind = PartitionStrategy{.partition = by_options<cpop_partition>},
};

}  // namespace plimsoll
