#include "tests/placement/fifo_oracle.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace plimsoll {
namespace {

constexpr Nanoseconds not_yet = std::numeric_limits<Nanoseconds>::max();

/// The longest path from each node to the end, with mean times and mean transfers, by asking each node's readers.
std::vector<Nanoseconds> paths_to_end(const OpDag& dag, const Machine& machine) {
  std::vector<Nanoseconds> path(dag.size, 0);
  for (std::uint32_t v = dag.size; v-- > 0;) {
    for (const DagEdge& edge : dag.out[v]) {
      path[v] = std::max(path[v], path[edge.node] + (edge.sends ? machine.mean_transfer(edge.bytes) : 0));
    }
    path[v] += mean_time(dag, machine, v);
  }
  return path;
}

/// When all that a node waits for is there.
Nanoseconds inputs_arrive(const OpDag& dag, const Machine& machine, std::uint32_t v, std::span<const std::uint32_t> on,
                          std::span<const Nanoseconds> finish) {
  Nanoseconds last = 0;
  for (const std::uint32_t value : dag.reads[v]) {
    last = std::max(last, value_arrives(dag, machine, value, on, finish, on[v]));
  }
  for (const DagEdge& edge : dag.in[v]) {
    if (!edge.sends) last = std::max(last, finish[edge.node]);
  }
  return last;
}

bool is_there(const OpDag& dag, const Machine& machine, std::uint32_t value, std::span<const std::uint32_t> on,
              std::span<const Nanoseconds> start, std::span<const Nanoseconds> finish, std::size_t p, Nanoseconds now) {
  const DagValue& each = dag.values[value];
  const auto reads_here_later = [&](std::uint32_t reader) { return on[reader] == p && finish[reader] > now; };
  const bool wanted_here = std::ranges::any_of(each.readers, reads_here_later);
  if (each.maker == no_node) {
    const auto has_begun = [&](std::uint32_t reader) { return on[reader] == p && start[reader] <= now; };
    return wanted_here && std::ranges::any_of(each.readers, has_begun);
  }
  if (on[each.maker] != p) return wanted_here && finish[each.maker] <= now;
  if (start[each.maker] > now) return false;
  const auto is_under_way = [&](std::uint32_t reader) {
    return value_arrives(dag, machine, value, on, finish, on[reader]) > now;
  };
  return finish[each.maker] > now || wanted_here || std::ranges::any_of(each.readers, is_under_way);
}

}  // namespace

Nanoseconds value_arrives(const OpDag& dag, const Machine& machine, std::uint32_t value,
                          std::span<const std::uint32_t> on, std::span<const Nanoseconds> finish, std::size_t q) {
  const DagValue& each = dag.values[value];
  if (each.maker == no_node) return 0;
  if (finish[each.maker] == not_yet) return not_yet;
  return finish[each.maker] + (on[each.maker] == q ? 0 : machine.transfer(on[each.maker], q, each.bytes));
}

Emulation emulate_by_instants(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on,
                              QueueOrder by) {
  const std::vector<Nanoseconds> path = paths_to_end(dag, machine);
  Emulation result;
  result.start.assign(dag.size, not_yet);
  result.finish.assign(dag.size, not_yet);
  result.order.resize(machine.size());
  const auto comes_before = [&](std::uint32_t v, std::uint32_t other) {
    if (by == QueueOrder::b_level) return std::pair(-path[v], v) < std::pair(-path[other], other);
    return std::pair(inputs_arrive(dag, machine, v, on, result.finish), v) <
           std::pair(inputs_arrive(dag, machine, other, on, result.finish), other);
  };
  for (Nanoseconds now = 0; now != not_yet;) {
    bool took = false;
    for (std::uint32_t p = 0; p < machine.size(); ++p) {
      bool busy = false;
      std::optional<std::uint32_t> next;
      for (std::uint32_t v = 0; v < dag.size; ++v) {
        if (on[v] != p) continue;
        if (result.start[v] != not_yet) {
          busy = busy || result.finish[v] > now;
        } else if (inputs_arrive(dag, machine, v, on, result.finish) <= now && (!next || comes_before(v, *next))) {
          next = v;
        }
      }
      if (busy || !next) continue;
      result.start[*next] = now;
      result.finish[*next] = now + time_on(dag, machine, *next, p);
      result.order[p].push_back(*next);
      took = true;
    }
    if (took) continue;  // an op without time may have finished in this very instant
    Nanoseconds later = not_yet;
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      if (result.finish[v] != not_yet && result.finish[v] > now) later = std::min(later, result.finish[v]);
      const Nanoseconds ready = inputs_arrive(dag, machine, v, on, result.finish);
      if (ready > now) later = std::min(later, ready);
    }
    now = later;
  }
  for (const Nanoseconds finish : result.finish) result.makespan = std::max(result.makespan, finish);
  return result;
}

std::vector<std::int64_t> bytes_by_instants(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on,
                                            std::span<const Nanoseconds> start, std::span<const Nanoseconds> finish) {
  std::set<Nanoseconds> instants{0};
  instants.insert(start.begin(), start.end());
  instants.insert(finish.begin(), finish.end());
  for (std::uint32_t value = 0; value < dag.values.size(); ++value) {
    for (std::size_t p = 0; p < machine.size(); ++p) {
      instants.insert(value_arrives(dag, machine, value, on, finish, p));
    }
  }
  std::vector<std::int64_t> most(machine.size(), 0);
  for (const Nanoseconds now : instants) {
    for (std::size_t p = 0; p < machine.size(); ++p) {
      std::int64_t bytes = 0;
      for (std::uint32_t v = 0; v < dag.size; ++v) {
        if (on[v] == p && start[v] <= now && now < finish[v]) bytes += dag.workspace[v];
      }
      for (const DagResident& resident : dag.residents) {
        const auto keeps = [&](std::uint32_t user) {
          return on[user] == p && (!resident.appears || start[user] <= now);
        };
        if (std::ranges::any_of(resident.users, keeps)) bytes += resident.bytes;
      }
      for (std::uint32_t value = 0; value < dag.values.size(); ++value) {
        if (is_there(dag, machine, value, on, start, finish, p, now)) bytes += dag.values[value].bytes;
      }
      most[p] = std::max(most[p], bytes);
    }
  }
  return most;
}

}  // namespace plimsoll
