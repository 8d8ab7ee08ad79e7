#include "strategies/placement/lists/levels.h"

#include <algorithm>

namespace plimsoll {

Levels levels(const OpDag& dag, std::span<const Nanoseconds> time, std::span<const Nanoseconds> transfer) {
  Levels made{std::vector<Nanoseconds>(dag.size, 0), std::vector<Nanoseconds>(dag.size, 0)};
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (std::size_t e = dag.out.first[v]; e < dag.out.first[v + 1]; ++e) {
      Nanoseconds& below = made.top[dag.out.items[e].node];
      below = std::max(below, made.top[v] + time[v] + transfer[e]);
    }
  }
  for (std::uint32_t v = dag.size; v-- > 0;) {
    for (std::size_t e = dag.out.first[v]; e < dag.out.first[v + 1]; ++e) {
      made.bottom[v] = std::max(made.bottom[v], transfer[e] + made.bottom[dag.out.items[e].node]);
    }
    made.bottom[v] += time[v];
  }
  return made;
}

Levels mean_levels(const OpDag& dag, const Machine& machine) {
  return levels(dag, mean_times(dag, machine), mean_transfers(dag, machine));
}

std::vector<Nanoseconds> mean_times(const OpDag& dag, const Machine& machine) {
  std::vector<Nanoseconds> times(dag.size);
  for (std::uint32_t v = 0; v < dag.size; ++v) times[v] = mean_time(dag, machine, v);
  return times;
}

std::vector<Nanoseconds> mean_transfers(const OpDag& dag, const Machine& machine) {
  std::vector<Nanoseconds> transfers;
  transfers.reserve(dag.out.items.size());
  for (const DagEdge& edge : dag.out.items) transfers.push_back(edge.sends ? machine.mean_transfer(edge.bytes) : 0);
  return transfers;
}

}  // namespace plimsoll
