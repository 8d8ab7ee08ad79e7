#include "strategies/placement/op_dag.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {
namespace {

Nanoseconds sending(Nanoseconds latency, double nanoseconds_per_byte, std::int64_t bytes) {
  return latency + std::llround(nanoseconds_per_byte * static_cast<double>(bytes));
}

}  // namespace

Nanoseconds Machine::transfer(std::size_t p, std::size_t q, std::int64_t bytes) const {
  if (p == q) return 0;
  const std::size_t pair = p * size() + q;
  return sending(latency[pair], nanoseconds_per_byte[pair], bytes);
}

Nanoseconds Machine::mean_transfer(std::int64_t bytes) const {
  return size() < 2 ? 0 : sending(mean_latency, mean_nanoseconds_per_byte, bytes);
}

void find_means(Machine& machine) {
  const std::size_t size = machine.size();
  double latency = 0, rate = 0;
  for (std::size_t p = 0; p < size; ++p) {
    for (std::size_t q = 0; q < size; ++q) {
      if (p == q) continue;
      latency += static_cast<double>(machine.latency[p * size + q]);
      rate += machine.nanoseconds_per_byte[p * size + q];
    }
  }
  const double pairs = static_cast<double>(size) * static_cast<double>(size - 1);
  machine.mean_latency = size < 2 ? 0 : std::llround(latency / pairs);
  machine.mean_nanoseconds_per_byte = size < 2 ? 0 : rate / pairs;
}

Nanoseconds time_on(const OpDag& dag, const Machine& machine, std::uint32_t node, std::size_t processor) {
  return dag.time[machine.class_of[processor]][node];
}

Nanoseconds mean_time(const OpDag& dag, const Machine& machine, std::uint32_t node) {
  Nanoseconds sum = 0, count = 0;
  for (std::size_t p = 0; p < machine.size(); ++p) {
    const Nanoseconds time = time_on(dag, machine, node, p);
    if (time == cannot_run) continue;
    sum += time;
    ++count;
  }
  return count == 0 ? 0 : (sum + count / 2) / count;
}

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
