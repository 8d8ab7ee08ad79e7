#include "strategies/placement/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/core/expects.h"
#include "strategies/placement/emulation.h"

namespace plimsoll {
namespace {

/// Groups and single nodes, and the unit of each node.
void find_units(Units& units, const OpDag& dag) {
  units.of.assign(dag.size, no_node);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    if (units.of[v] != no_node) continue;
    const std::uint32_t unit = units.size();
    if (dag.group[v] == no_node) {
      units.nodes.items.push_back(v);
    } else {
      const std::vector<std::uint32_t>& group = dag.together[dag.group[v]];
      units.nodes.items.insert(units.nodes.items.end(), group.begin(), group.end());
    }
    for (std::size_t i = units.nodes.first.back(); i < units.nodes.items.size(); ++i) {
      units.of[units.nodes.items[i]] = unit;
    }
    units.nodes.end_row();
  }
}

void find_times(Units& units, const OpDag& dag, const Machine& machine) {
  for (std::size_t p = 0; p < machine.size(); ++p) {
    std::vector<Nanoseconds>& times = units.time.emplace_back(units.size(), machine.memory[p] > 0 ? 0 : cannot_run);
    for (std::uint32_t u = 0; u < units.size(); ++u) {
      for (const std::uint32_t v : units.nodes[u]) {
        const Nanoseconds time = time_on(dag, machine, v, p);
        times[u] = times[u] == cannot_run || time == cannot_run ? cannot_run : times[u] + time;
      }
    }
  }
}

/// Which processors can run a unit.
std::vector<bool> able(const Units& units, std::uint32_t u) {
  std::vector<bool> can;
  for (const std::vector<Nanoseconds>& times : units.time) can.push_back(times[u] != cannot_run);
  return can;
}

/// Not the host, though it may have the most to do.
void find_field(Units& units, const Machine& machine) {
  std::map<std::vector<bool>, Nanoseconds> work;  // by who can run it
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    const std::vector<bool> can = able(units, u);
    const bool only_host = machine.has_host && std::ranges::find(can, true) + 1 == can.end();
    Nanoseconds& sum = work[can];
    if (only_host) continue;
    Nanoseconds most = 1;
    for (const std::vector<Nanoseconds>& times : units.time) {
      if (times[u] != cannot_run) most = std::max(most, times[u]);
    }
    sum += most;
  }
  const auto widest = std::ranges::max_element(work, {}, [](const auto& each) { return each.second; });
  for (std::uint32_t p = 0; widest != work.end() && p < units.time.size(); ++p) {
    if (widest->first[p]) units.field.push_back(p);
  }
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    units.is_free.push_back(
        std::ranges::all_of(units.field, [&](std::uint32_t p) { return units.time[p][u] != cannot_run; }));
  }
}

Nanoseconds time_of_free_units(const Units& units, std::uint32_t p) {
  Nanoseconds sum = 0;
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (units.is_free[u]) sum += units.time[p][u];
  }
  return sum;
}

}  // namespace

std::vector<std::uint32_t> Units::fastest_first() const {
  std::vector<std::uint32_t> sorted = field;
  std::vector<Nanoseconds> sums(time.size());
  for (const std::uint32_t p : field) sums[p] = time_of_free_units(*this, p);
  std::ranges::stable_sort(sorted, {}, [&](std::uint32_t p) { return sums[p]; });
  return sorted;
}

std::variant<Units, Infeasible> units_of(const OpDag& dag, const Machine& machine) {
  Units units;
  find_units(units, dag);
  find_times(units, dag, machine);
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    const auto can_run = [&](const std::vector<Nanoseconds>& times) { return times[u] != cannot_run; };
    if (std::ranges::any_of(units.time, can_run)) continue;
    return Infeasible{.reason = fmt::format("no device that has memory can run op {} of the micro-batch's {}",
                                            units.nodes[u].front(), dag.size),
                      .smallest = {}};
  }
  find_field(units, machine);
  return units;
}

Assignment::Assignment(const Units& units) : units_(units), on_(units.size(), no_node), load_(units.time.size(), 0) {}

void Assignment::put(std::uint32_t unit, std::uint32_t processor) {
  EXPECTS(!is_put(unit) && units_.time[processor][unit] != cannot_run);
  on_[unit] = processor;
  load_[processor] += units_.time[processor][unit];
}

void Assignment::put_least_loaded(std::span<const std::uint32_t> units) {
  std::uint32_t best = no_node;
  Nanoseconds least = cannot_run;
  for (std::uint32_t p = 0; p < load_.size(); ++p) {
    Nanoseconds end = load_[p];
    for (const std::uint32_t u : units) {
      const Nanoseconds time = units_.time[p][u];
      end = end == cannot_run || time == cannot_run ? cannot_run : end + time;
    }
    if (end >= least) continue;
    least = end;
    best = p;
  }
  EXPECTS(best != no_node);
  for (const std::uint32_t u : units) put(u, best);
}

void Assignment::put_rest() {
  for (std::uint32_t u = 0; u < units_.size(); ++u) {
    if (!is_put(u)) put_least_loaded(std::span(&u, 1));
  }
}

Placement Assignment::placement() const {
  Placement made;
  made.on.reserve(units_.of.size());
  for (const std::uint32_t unit : units_.of) made.on.push_back(on_[unit]);
  return made;
}

std::vector<double> shares(const Units& units) {
  std::vector<Nanoseconds> bound(units.time.size(), 0);  // what only this one can run
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    const std::vector<bool> can = able(units, u);
    if (std::ranges::count(can, true) > 1 || units.is_free[u]) continue;
    const auto only = static_cast<std::size_t>(std::ranges::find(can, true) - can.begin());
    bound[only] += units.time[only][u];
  }
  // The least level to which all free work fills the processors; they are filled from the least bound one on.
  std::vector<std::uint32_t> sorted = units.field;
  std::ranges::stable_sort(sorted, {}, [&](std::uint32_t p) { return bound[p]; });
  std::vector<double> speed;  // by position in `sorted`: the share of the free work in a nanosecond
  for (const std::uint32_t p : sorted) {
    speed.push_back(1 / static_cast<double>(std::max<Nanoseconds>(1, time_of_free_units(units, p))));
  }
  double level = 0, speeds = 0, filled = 0;  // filled: what lies below the bounds, in shares
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    speeds += speed[i];
    filled += speed[i] * static_cast<double>(bound[sorted[i]]);
    level = (1 + filled) / speeds;
    if (i + 1 < sorted.size() && level <= static_cast<double>(bound[sorted[i + 1]])) break;
  }
  std::vector<double> made;
  for (const std::uint32_t p : units.field) {
    const auto at = static_cast<std::size_t>(std::ranges::find(sorted, p) - sorted.begin());
    made.push_back(std::max(0.0, level - static_cast<double>(bound[p])) * speed[at]);
  }
  return made;
}

std::optional<std::uint32_t> overfull(const OpDag& dag, const Machine& machine, const Placement& placement) {
  const auto is_limited = [](std::int64_t bytes) { return bytes != unlimited_bytes; };
  if (!std::ranges::any_of(machine.memory, is_limited)) return std::nullopt;
  const Emulation times = emulate(dag, machine, placement.on, QueueOrder::fifo);
  const std::vector<std::int64_t> peaks = memory_of(dag, machine, placement.on, times);
  for (std::uint32_t p = 0; p < peaks.size(); ++p) {
    if (peaks[p] > machine.memory[p]) return p;
  }
  return std::nullopt;
}

}  // namespace plimsoll
