#include "tests/placement/op_dags.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "tests/generate/random.h"

namespace plimsoll {
namespace {

/// Fills edges, and what nodes read and make, from the values.
void connect(OpDag& dag) {
  dag.makes.assign(dag.size, {});
  dag.reads.assign(dag.size, {});
  std::vector<std::map<std::uint32_t, std::int64_t>> out(dag.size), in(dag.size);
  for (std::uint32_t value = 0; value < dag.values.size(); ++value) {
    const DagValue& each = dag.values[value];
    if (each.maker != no_node) dag.makes[each.maker].push_back(value);
    for (const std::uint32_t reader : each.readers) {
      dag.reads[reader].push_back(value);
      if (each.maker == no_node) continue;
      out[each.maker][reader] += each.bytes;
      in[reader][each.maker] += each.bytes;
    }
  }
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (const auto& [node, bytes] : out[v]) dag.out.items.push_back({node, bytes});
    for (const auto& [node, bytes] : in[v]) dag.in.items.push_back({node, bytes});
    dag.out.end_row();
    dag.in.end_row();
  }
}

OpDag empty_dag(std::uint32_t nodes) {
  OpDag dag;
  dag.size = nodes;
  dag.workspace.assign(nodes, 0);
  dag.group.assign(nodes, no_node);
  return dag;
}

}  // namespace

OpDag drawn_dag(const std::vector<std::vector<Nanoseconds>>& times, const std::vector<DrawnEdge>& edges) {
  OpDag dag = empty_dag(static_cast<std::uint32_t>(times.front().size()));
  dag.time = times;
  for (const DrawnEdge& edge : edges) dag.values.push_back({edge.from, edge.transfer, {edge.to}});
  connect(dag);
  return dag;
}

Machine drawn_machine(std::size_t processors, bool equal) {
  Machine machine;
  for (std::uint32_t p = 0; p < processors; ++p) machine.class_of.push_back(equal ? 0 : p);
  machine.memory.assign(processors, unlimited_bytes);
  machine.latency.assign(processors * processors, 0);
  machine.nanoseconds_per_byte.assign(processors * processors, 1);
  find_means(machine);
  return machine;
}

OpDag pardnn_figure() {
  constexpr std::string_view pairs = "AB AC AD BE BF CG CH DL FI GJ HJ JK KM LM MN MO NQ OP PQ EI IM ";
  std::vector<DrawnEdge> edges;
  for (std::size_t at = 0; at < pairs.size(); at += 3) {
    const std::string_view pair = pairs.substr(at, 2);
    const auto number = [&](std::size_t i) { return static_cast<std::uint32_t>(pair[i] - 'A'); };
    edges.push_back({number(0), number(1), pair == "EI" ? 3 : pair == "IM" ? 2 : 1});
  }
  return drawn_dag({std::vector<Nanoseconds>(17, 1)}, edges);
}

OpDag heft_tasks() {
  const std::vector<std::vector<Nanoseconds>> tasks{{14, 16, 9}, {13, 19, 18}, {11, 13, 19}, {13, 8, 17},  {12, 13, 10},
                                                    {13, 16, 9}, {7, 15, 11},  {5, 11, 14},  {18, 12, 20}, {21, 7, 16}};
  std::vector<std::vector<Nanoseconds>> times(3);
  for (const std::vector<Nanoseconds>& task : tasks) {
    for (std::size_t p = 0; p < times.size(); ++p) times[p].push_back(task[p]);
  }
  return drawn_dag(times, {{0, 1, 18},
                           {0, 2, 12},
                           {0, 3, 9},
                           {0, 4, 11},
                           {0, 5, 14},
                           {1, 7, 19},
                           {1, 8, 16},
                           {2, 6, 23},
                           {3, 7, 27},
                           {3, 8, 23},
                           {4, 8, 13},
                           {5, 7, 15},
                           {6, 9, 17},
                           {7, 9, 11},
                           {8, 9, 13}});
}

OpDag random_dag(std::uint64_t seed, std::uint32_t nodes, std::uint32_t classes, bool groups) {
  Random random(seed);
  OpDag dag = empty_dag(nodes);
  dag.time.resize(classes);
  for (std::vector<Nanoseconds>& times : dag.time) {
    for (std::uint32_t v = 0; v < nodes; ++v) times.push_back(random.between(1, 9));
  }
  dag.values.push_back({no_node, random.between(0, 9), {}});
  for (std::uint32_t v = 0; v < nodes; ++v) {
    std::set<std::uint32_t> read;
    const std::uint32_t count = random.between(0, 3);
    for (std::uint32_t r = 0; r < count; ++r) read.insert(random.below(static_cast<std::uint32_t>(dag.values.size())));
    for (const std::uint32_t value : read) dag.values[value].readers.push_back(v);
    dag.values.push_back({v, random.between(0, 9), {}});
    if (random.chance(0.1)) dag.values.push_back({v, random.between(1, 5), {}});
    if (random.chance(0.3)) dag.residents.push_back({random.between(1, 9), {v}});
    if (random.chance(0.2)) dag.workspace[v] = random.between(1, 5);
  }
  for (DagResident& resident : dag.residents) {
    const std::uint32_t other = random.below(nodes);
    if (random.chance(0.3) && other != resident.users.front()) resident.users.push_back(other);
    std::ranges::sort(resident.users);
  }
  if (groups) {
    const auto number = static_cast<std::uint32_t>(random.between(0, std::max(1u, nodes / 4)));
    for (std::uint32_t g = 0; g < number; ++g) {
      std::vector<std::uint32_t> group;
      for (std::uint32_t k = 0; k < 2; ++k) {
        const std::uint32_t v = random.below(nodes);
        if (dag.group[v] == no_node && std::ranges::find(group, v) == group.end()) group.push_back(v);
      }
      if (group.size() < 2) continue;
      std::ranges::sort(group);
      for (const std::uint32_t v : group) dag.group[v] = static_cast<std::uint32_t>(dag.together.size());
      dag.together.push_back(group);
    }
  }
  connect(dag);
  return dag;
}

Machine random_machine(std::uint64_t seed, std::size_t processors) {
  Random random(seed);
  Machine machine = drawn_machine(processors, false);
  for (std::size_t pair = 0; pair < processors * processors; ++pair) {
    machine.latency[pair] = random.between(0, 3);
    machine.nanoseconds_per_byte[pair] = random.between(1, 3);
  }
  find_means(machine);
  return machine;
}

}  // namespace plimsoll
