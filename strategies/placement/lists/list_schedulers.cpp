// Ops are taken one after the other, and each goes where it begins or ends first: `heft`, `cpop` and `etf`.

#include "strategies/placement/lists/list_schedulers.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>

#include "strategies/placement/lists/insertion_schedule.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {
namespace {

constexpr auto list_options = options_of<OwnOrderOptions>(place_on_option, homes_option, own_queue_option);

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

class EarliestTaskFirst {
 public:
  EarliestTaskFirst(const OpDag& dag, const Machine& machine)
      : dag_(dag),
        machine_(machine),
        static_level_(levels(dag, mean_times(dag, machine), std::vector<Nanoseconds>(dag.out.items.size(), 0)).bottom),
        processors_(machine.size()),
        waits_(dag.size),
        finish_(dag.size),
        group_on_(dag.together.size(), no_node) {
    made_.placement.on.assign(dag.size, no_node);
    made_.placement.order.resize(machine.size());
  }

  ListOutcome run() && {
    bool is_possible = true;
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      waits_[v] = dag_.in[v].size();
      if (waits_[v] == 0) is_possible = becomes_ready(v) && is_possible;
    }
    for (std::uint32_t ran = 0; ran < dag_.size && is_possible; ++ran) {
      const Choice first = choose();
      place(first);
      for (const DagEdge& edge : dag_.out[first.node]) {
        if (--waits_[edge.node] == 0) is_possible = becomes_ready(edge.node) && is_possible;
      }
    }
    if (!is_possible) return nowhere_to_run();
    return std::move(made_);
  }

 private:
  /// A node that is ready: `key` is when its inputs are there, or 0 where they are.
  struct Waiting {
    Nanoseconds key, level;  // level: the negative of its static level
    std::uint32_t node;

    friend bool operator>(const Waiting& a, const Waiting& b) {
      return std::tie(a.key, a.level, a.node) > std::tie(b.key, b.level, b.node);
    }
  };
  using Heap = std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>>;
  struct Processor {
    Heap waits;  // for inputs that come after the processor is free
    Heap there;  // starts when the processor is free
    Nanoseconds free = 0;
  };
  struct Choice {
    Nanoseconds start = cannot_run, level = 0;
    std::uint32_t node = no_node;
    Nanoseconds time = 0;
    std::uint32_t processor = 0;

    friend bool operator<(const Choice& a, const Choice& b) {
      return std::tie(a.start, a.level, a.node, a.time, a.processor) <
             std::tie(b.start, b.level, b.node, b.time, b.processor);
    }
  };

  bool may_take(std::uint32_t v, std::size_t p) const {
    const std::uint32_t group = dag_.group[v];
    if (group != no_node && group_on_[group] != no_node) return group_on_[group] == p;
    return may_run_on(dag_, machine_, v, p);
  }

  /// False if no processor may run it.
  bool becomes_ready(std::uint32_t v) {
    bool is_possible = false;
    for (std::size_t p = 0; p < processors_.size(); ++p) {
      if (!may_take(v, p)) continue;
      is_possible = true;
      Nanoseconds arrival = 0;
      for (const DagEdge& edge : dag_.in[v]) {
        const Nanoseconds sent =
            edge.sends ? machine_.transfer(made_.placement.on[edge.node], p, edge.bytes) : Nanoseconds{0};
        arrival = std::max(arrival, finish_[edge.node] + sent);
      }
      const bool is_there = arrival <= processors_[p].free;
      (is_there ? processors_[p].there : processors_[p].waits).push({is_there ? 0 : arrival, -static_level_[v], v});
    }
    return is_possible;
  }

  /// Drops from the top what runs already, or must run elsewhere.
  void clear_top(Heap& heap, std::size_t p) const {
    while (!heap.empty()) {
      const std::uint32_t v = heap.top().node;
      if (made_.placement.on[v] == no_node && may_take(v, p)) return;
      heap.pop();
    }
  }

  Choice choose() {
    Choice best;
    for (std::uint32_t p = 0; p < processors_.size(); ++p) {
      Processor& each = processors_[p];
      clear_top(each.there, p);
      if (each.there.empty()) clear_top(each.waits, p);
      const Heap& from = each.there.empty() ? each.waits : each.there;
      if (from.empty()) continue;
      const Waiting& top = from.top();
      best = std::min(
          best, Choice{std::max(each.free, top.key), top.level, top.node, time_on(dag_, machine_, top.node, p), p});
    }
    return best;
  }

  void place(const Choice& choice) {
    const std::uint32_t v = choice.node;
    Processor& processor = processors_[choice.processor];
    made_.placement.on[v] = choice.processor;
    made_.placement.order[choice.processor].push_back(v);
    if (dag_.group[v] != no_node) group_on_[dag_.group[v]] = choice.processor;
    processor.free = finish_[v] = choice.start + choice.time;
    made_.makespan = std::max(made_.makespan, finish_[v]);
    for (; !processor.waits.empty() && processor.waits.top().key <= processor.free; processor.waits.pop()) {
      const Waiting& top = processor.waits.top();
      if (made_.placement.on[top.node] == no_node) processor.there.push({0, top.level, top.node});
    }
  }

  const OpDag& dag_;
  const Machine& machine_;
  const std::vector<Nanoseconds> static_level_;
  std::vector<Processor> processors_;
  std::vector<std::size_t> waits_;  // by node: for so many others
  std::vector<Nanoseconds> finish_;
  std::vector<std::uint32_t> group_on_;  // no_node: not decided
  ListSchedule made_;
};

}  // namespace

Infeasible nowhere_to_run() {
  return {.reason = "no processor that has memory runs all that must be together", .smallest = std::nullopt};
}

PlacementOutcome without_makespan(ListOutcome outcome) {
  if (Infeasible* none = std::get_if<Infeasible>(&outcome)) return std::move(*none);
  return std::move(std::get<ListSchedule>(outcome).placement);
}

ListOutcome heft_schedule(const OpDag& dag, const Machine& machine) {
  const std::vector<Nanoseconds> rank = mean_levels(dag, machine).bottom;
  std::vector<std::uint32_t> nodes(dag.size);
  std::iota(nodes.begin(), nodes.end(), 0u);
  // Numbers are in a valid order, so that of equal ranks what is waited for comes first.
  std::ranges::stable_sort(nodes, std::ranges::greater{}, [&](std::uint32_t v) { return rank[v]; });
  InsertionSchedule schedule(dag, machine);
  for (const std::uint32_t v : nodes) {
    const std::optional<std::uint32_t> processor = schedule.earliest_finish(v);
    if (!processor) return nowhere_to_run();
    schedule.place(v, *processor);
  }
  const Nanoseconds makespan = schedule.makespan();
  return ListSchedule{std::move(schedule).placement(), makespan};
}

// The strategy `heft`: ops by the longest path from them to the end, each where it ends first, into idle times too.
//   rank(v) = mean time(v) + max over readers w of (mean transfer(v, w) + rank(w))
// Source: Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
// computing", IEEE TPDS 13(3), 2002, section 4.1.
extern constinit const StrategyInfo heft_strategy{
    .name = "heft",
    .family = Family::placement,
    .summary = "puts ops, longest path to the end first, where each ends first, idle times between others included",
    .source = "Topcuoglu et al., IEEE TPDS 2002",
    .options = list_options,
    .kind = placed_by<heft_strategy, placed_from<heft_schedule>, OwnOrderOptions>,
};

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

// The strategy `cpop`: what is on the critical path goes to the one processor that runs it fastest, all else where it
// ends first.
//   priority(v) = longest path to v + longest path from v, with mean times and transfers; equal all along the critical
//   path
// Source: Topcuoglu, Hariri, Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
// computing", IEEE TPDS 13(3), 2002, section 4.2. Where no processor runs all of the path, the one that runs most of it
// is taken, and the rest goes where it ends first.
extern constinit const StrategyInfo cpop_strategy{
    .name = "cpop",
    .family = Family::placement,
    .summary = "puts the critical path on the processor that runs it fastest, all other ops where each ends first",
    .source = "Topcuoglu et al., IEEE TPDS 2002",
    .options = list_options,
    .kind = placed_by<cpop_strategy, placed_from<cpop_schedule>, OwnOrderOptions>,
};

ListOutcome etf_schedule(const OpDag& dag, const Machine& machine) {
  return EarliestTaskFirst(dag, machine).run();
}

// The strategy `etf`: of all ops that are ready and all processors the pair that starts first, again and again; of
// equals the op with the longest path of times to the end.
// Source: Hwang, Chow, Anger, Lee, "Scheduling precedence graphs in systems with interprocessor communication times",
// SIAM J. Computing 18(2), 1989. Each processor keeps what is ready in two heaps, so that K processors and V ops take
// O(K V log V) instead of O(K V^2). Of equals on processors of several rates the one that ends first.
extern constinit const StrategyInfo etf_strategy{
    .name = "etf",
    .family = Family::placement,
    .summary = "takes of all ops that are ready and all processors the pair that starts first",
    .source = "Hwang et al., SIAM J. Computing 1989",
    .options = list_options,
    .kind = placed_by<etf_strategy, placed_from<etf_schedule>, OwnOrderOptions>,
};

}  // namespace plimsoll
