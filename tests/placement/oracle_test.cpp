// Emulations, their bytes, and the oracles that other tests of placements are held against.

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>

#include "strategies/placement/emulation.h"
#include "tests/generate/random.h"
#include "tests/placement/fifo_oracle.h"
#include "tests/placement/op_dags.h"
#include "tests/placement/placement_oracle.h"

namespace plimsoll {
namespace {

void insert_edge(Rows<DagEdge>& rows, std::uint32_t row, DagEdge edge) {
  const auto begin = rows.items.begin() + rows.first[row], end = rows.items.begin() + rows.first[row + 1];
  rows.items.insert(std::ranges::lower_bound(begin, end, edge.node, {}, &DagEdge::node), edge);
  for (std::size_t later = row + 1; later < rows.first.size(); ++later) ++rows.first[later];
}

/// Leaves each reader one value of each maker.
void read_one_value_of_each(OpDag& dag) {
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    std::vector<std::uint32_t> makers, kept;
    for (const std::uint32_t value : dag.reads[v]) {
      const std::uint32_t maker = dag.values[value].maker;
      if (std::ranges::find(makers, maker) == makers.end()) {
        makers.push_back(maker);
        kept.push_back(value);
        continue;
      }
      std::erase(dag.values[value].readers, v);
      for (std::size_t i = dag.in.first[v]; i < dag.in.first[v + 1]; ++i) {
        if (dag.in.items[i].node == maker) dag.in.items[i].bytes -= dag.values[value].bytes;
      }
      for (std::size_t i = dag.out.first[maker]; i < dag.out.first[maker + 1]; ++i) {
        if (dag.out.items[i].node == v) dag.out.items[i].bytes -= dag.values[value].bytes;
      }
    }
    dag.reads[v] = kept;
  }
}

/// A random graph with one value from an op to another, where some ops must come after others that send them
/// nothing, on one processor or two, and some residents appear.
OpDag ordered_dag(std::uint64_t seed, std::uint32_t nodes, std::uint32_t classes, bool groups) {
  Random random(seed + 1'000'000);
  OpDag dag = random_dag(seed, nodes, classes, groups);
  read_one_value_of_each(dag);
  const auto order = [&](std::uint32_t first, std::uint32_t second) {
    if (std::ranges::find(dag.out[first], second, &DagEdge::node) != dag.out[first].end()) return;
    insert_edge(dag.out, first, {second, 0, false});
    insert_edge(dag.in, second, {first, 0, false});
  };
  for (const std::vector<std::uint32_t>& group : dag.together) {
    if (random.chance(0.7)) order(group[0], group[1]);
  }
  for (std::uint32_t v = 1; v < nodes; ++v) {
    if (random.chance(0.1)) order(random.below(v), v);
  }
  for (DagResident& resident : dag.residents) resident.appears = random.chance(0.4);
  return dag;
}

std::vector<std::uint32_t> anywhere(Random& random, const OpDag& dag, std::size_t processors) {
  std::vector<std::uint32_t> on;
  for (std::uint32_t v = 0; v < dag.size; ++v) on.push_back(random.below(static_cast<std::uint32_t>(processors)));
  for (const std::vector<std::uint32_t>& group : dag.together) {
    for (const std::uint32_t v : group) on[v] = on[group.front()];
  }
  return on;
}

/// Some ops cannot run on some class, with their groups; each runs on class 0.
void forbid_some(Random& random, OpDag& dag) {
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    if (!random.chance(0.2)) continue;
    std::vector<Nanoseconds>& times = dag.time[random.below(static_cast<std::uint32_t>(dag.time.size()))];
    if (&times == &dag.time.front()) continue;
    times[v] = cannot_run;
    if (dag.group[v] == no_node) continue;
    for (const std::uint32_t other : dag.together[dag.group[v]]) times[other] = cannot_run;
  }
}

bool within(std::span<const std::int64_t> bytes, std::span<const std::int64_t> limits) {
  return std::ranges::equal(bytes, limits, std::ranges::less_equal());
}

/// What trying all orders of all ops on all placements finds.
struct AllTried {
  Nanoseconds makespan = cannot_run;            ///< the least
  Nanoseconds limited = cannot_run;             ///< the least within the limits
  std::int64_t fewest_bytes = unlimited_bytes;  ///< on the processor with the most
};

AllTried try_all(const OpDag& dag, const Machine& machine, std::span<const std::int64_t> limits) {
  AllTried found;
  std::vector<std::uint32_t> order(dag.size);
  std::iota(order.begin(), order.end(), 0u);
  std::size_t placements = 1;
  for (std::uint32_t v = 0; v < dag.size; ++v) placements *= machine.size();
  do {
    const auto position = [&](std::uint32_t v) { return std::ranges::find(order, v); };
    bool legal = true;
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      for (const DagEdge& edge : dag.in[v]) legal = legal && position(edge.node) < position(v);
    }
    if (!legal) continue;
    for (std::size_t number = 0; number < placements; ++number) {
      std::vector<std::uint32_t> on;
      for (std::size_t rest = number; on.size() < dag.size; rest /= machine.size()) {
        on.push_back(static_cast<std::uint32_t>(rest % machine.size()));
      }
      bool allowed = true;
      for (std::uint32_t v = 0; v < dag.size; ++v) {
        allowed = allowed && time_on(dag, machine, v, on[v]) != cannot_run;
        if (dag.group[v] != no_node) allowed = allowed && on[v] == on[dag.together[dag.group[v]].front()];
      }
      if (!allowed) continue;
      std::vector<Nanoseconds> start(dag.size), finish(dag.size), free(machine.size());
      for (const std::uint32_t v : order) {
        start[v] = free[on[v]];
        for (const DagEdge& edge : dag.in[v]) start[v] = std::max(start[v], finish[edge.node]);
        for (const std::uint32_t value : dag.reads[v]) {
          start[v] = std::max(start[v], value_arrives(dag, machine, value, on, finish, on[v]));
        }
        free[on[v]] = finish[v] = start[v] + time_on(dag, machine, v, on[v]);
      }
      const Nanoseconds makespan = std::ranges::max(finish);
      const std::vector<std::int64_t> bytes = bytes_by_instants(dag, machine, on, start, finish);
      found.makespan = std::min(found.makespan, makespan);
      if (within(bytes, limits)) found.limited = std::min(found.limited, makespan);
      found.fewest_bytes = std::min(found.fewest_bytes, std::ranges::max(bytes));
    }
  } while (std::ranges::next_permutation(order).found);
  return found;
}

TEST_CASE("emulations are those of a loop over instants, and so are their bytes", "[placement]") {
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const auto nodes = static_cast<std::uint32_t>(5 + seed * 36 / 1000);
    const std::size_t processors = 1 + seed % 4;
    const OpDag dag = ordered_dag(seed, nodes, static_cast<std::uint32_t>(processors), seed / 4 % 2 == 1);
    const Machine machine = random_machine(seed, processors);
    const std::vector<std::uint32_t> on = anywhere(random, dag, processors);
    for (const QueueOrder by : {QueueOrder::fifo, QueueOrder::b_level}) {
      CAPTURE(by == QueueOrder::fifo);
      const Emulation expected = emulate_by_instants(dag, machine, on, by);
      const Emulation found = emulate(dag, machine, on, by);
      REQUIRE(found.start == expected.start);
      REQUIRE(found.finish == expected.finish);
      REQUIRE(found.order == expected.order);
      REQUIRE(found.makespan == expected.makespan);
      REQUIRE(memory_of(dag, machine, on, found) ==
              bytes_by_instants(dag, machine, on, expected.start, expected.finish));
    }
  }
}

TEST_CASE("no placement ends before the best, and the best is what it says", "[placement]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::size_t processors = 2 + seed % 2;
    OpDag dag = ordered_dag(seed, static_cast<std::uint32_t>(2 + seed * 6 / 200), 3, seed / 2 % 2 == 1);
    Machine machine = seed % 5 == 0 ? drawn_machine(processors, true) : random_machine(seed, processors);
    const std::vector<std::int64_t> none(processors, unlimited_bytes);
    const auto best = least_makespan(dag, machine, none);
    REQUIRE(best);
    const Emulation again = emulate_in_order(dag, machine, best->placement);
    REQUIRE(again.start == best->start);
    REQUIRE(again.makespan == best->makespan);
    const auto limit = smallest_limit(dag, machine);
    REQUIRE(limit);
    const auto tight = least_makespan(dag, machine, std::vector(processors, *limit));
    REQUIRE(tight);
    REQUIRE(tight->makespan >= best->makespan);
    const Emulation tight_times = emulate_in_order(dag, machine, tight->placement);
    REQUIRE(std::ranges::max(memory_of(dag, machine, tight->placement.on, tight_times)) == *limit);
    REQUIRE_FALSE(least_makespan(dag, machine, std::vector(processors, *limit - 1)));
    for (int draw = 0; draw < 10; ++draw) {
      const std::vector<std::uint32_t> on = anywhere(random, dag, processors);
      for (const QueueOrder by : {QueueOrder::fifo, QueueOrder::b_level}) {
        const Emulation times = emulate(dag, machine, on, by);
        const std::vector<std::int64_t> bytes = memory_of(dag, machine, on, times);
        REQUIRE(best->makespan <= times.makespan);
        REQUIRE(*limit <= std::ranges::max(bytes));
        const auto as_small = least_makespan(dag, machine, bytes);
        REQUIRE(as_small);
        REQUIRE(as_small->makespan <= times.makespan);
      }
    }
  }
}

TEST_CASE("the best of tiny graphs is that of all orders of all ops everywhere", "[placement]") {
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    Random random(seed);
    const std::size_t processors = 2 + seed % 2;
    OpDag dag = ordered_dag(seed, static_cast<std::uint32_t>(2 + seed / 30), 3, seed / 2 % 2 == 1);
    const bool equal = seed % 5 == 0;
    const Machine machine = equal ? drawn_machine(processors, true) : random_machine(seed, processors);
    if (!equal) forbid_some(random, dag);
    std::vector<std::int64_t> limits;
    for (std::size_t p = 0; p < processors; ++p) limits.push_back(random.between(5, 40));
    const AllTried expected = try_all(dag, machine, limits);
    const auto best = least_makespan(dag, machine, std::vector(processors, unlimited_bytes));
    const auto limited = least_makespan(dag, machine, limits);
    REQUIRE(best);
    REQUIRE(best->makespan == expected.makespan);
    REQUIRE((limited ? limited->makespan : cannot_run) == expected.limited);
    REQUIRE(smallest_limit(dag, machine) == expected.fewest_bytes);
  }
}

}  // namespace
}  // namespace plimsoll
