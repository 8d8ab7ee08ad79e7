#include "strategies/placement/emulation.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "sim/core/expects.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {
namespace {

/// Something that happens: a processor's node ends, or the last thing that a node waits for arrives.
struct EmulationEvent {
  Nanoseconds time = 0;
  bool is_arrival = false;
  std::uint32_t node = 0;

  friend bool operator>(const EmulationEvent& a, const EmulationEvent& b) {
    return std::tie(a.time, a.is_arrival, a.node) > std::tie(b.time, b.is_arrival, b.node);
  }
};

using Events = std::priority_queue<EmulationEvent, std::vector<EmulationEvent>, std::greater<>>;

/// By which a processor takes the least of what is ready.
struct EventRank {
  Nanoseconds first = 0;
  std::uint32_t node = 0;

  friend bool operator>(const EventRank& a, const EventRank& b) {
    return std::tie(a.first, a.node) > std::tie(b.first, b.node);
  }
};

/// Counts what each node waits for and when the last of it comes.
class Arrivals {
 public:
  Arrivals(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on)
      : dag_(dag), machine_(machine), on_(on), waits_(dag.size), at_(dag.size, 0) {
    for (std::uint32_t v = 0; v < dag.size; ++v) waits_[v] = static_cast<std::uint32_t>(dag.in[v].size());
  }

  bool is_ready(std::uint32_t v) const { return waits_[v] == 0; }
  Nanoseconds at(std::uint32_t v) const { return at_[v]; }

  /// Calls `ready` for every node that waits for nothing else.
  template <class Ready>
  void finished(std::uint32_t v, Nanoseconds time, Ready ready) {
    for (const DagEdge& edge : dag_.out[v]) {
      const Nanoseconds sent = edge.sends ? machine_.transfer(on_[v], on_[edge.node], edge.bytes) : 0;
      at_[edge.node] = std::max(at_[edge.node], time + sent);
      if (--waits_[edge.node] == 0) ready(edge.node);
    }
  }

 private:
  const OpDag& dag_;
  const Machine& machine_;
  std::span<const std::uint32_t> on_;
  std::vector<std::uint32_t> waits_;
  std::vector<Nanoseconds> at_;
};

Emulation empty_emulation(const OpDag& dag, const Machine& machine) {
  Emulation made;
  made.start.resize(dag.size);
  made.finish.resize(dag.size);
  made.order.resize(machine.size());
  return made;
}

void run(Emulation& made, std::uint32_t v, std::uint32_t p, Nanoseconds start, Nanoseconds time) {
  EXPECTS(time != cannot_run);
  made.start[v] = start;
  made.finish[v] = start + time;
  made.order[p].push_back(v);
  made.makespan = std::max(made.makespan, made.finish[v]);
}

Emulation emulate_by_number(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on) {
  Placement placement{{on.begin(), on.end()}, std::vector<std::vector<std::uint32_t>>(machine.size())};
  for (std::uint32_t v = 0; v < dag.size; ++v) placement.order[on[v]].push_back(v);
  return emulate_in_order(dag, machine, placement);
}

}  // namespace

Emulation emulate(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on, QueueOrder by) {
  if (by == QueueOrder::number) return emulate_by_number(dag, machine, on);
  const std::vector<Nanoseconds> bottom =
      by == QueueOrder::b_level ? mean_levels(dag, machine).bottom : std::vector<Nanoseconds>{};
  Emulation made = empty_emulation(dag, machine);
  Arrivals arrivals(dag, machine, on);
  Events events;
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    if (arrivals.is_ready(v)) events.push({0, true, v});
  }
  using Queue = std::priority_queue<EventRank, std::vector<EventRank>, std::greater<>>;
  std::vector<Queue> ready(machine.size());
  std::vector<bool> is_busy(machine.size(), false);
  std::vector<std::uint32_t> changed;  // processors that may take a node at this instant
  Nanoseconds joined = 0;              // nodes that have become ready
  while (!events.empty()) {
    const Nanoseconds now = events.top().time;
    changed.clear();
    for (; !events.empty() && events.top().time == now; events.pop()) {
      const EmulationEvent event = events.top();
      const std::uint32_t p = on[event.node];
      changed.push_back(p);
      if (event.is_arrival) {
        ready[p].push({by == QueueOrder::fifo ? joined++ : -bottom[event.node], event.node});
        continue;
      }
      is_busy[p] = false;
    }
    for (const std::uint32_t p : changed) {
      if (is_busy[p] || ready[p].empty()) continue;
      const std::uint32_t v = ready[p].top().node;
      ready[p].pop();
      run(made, v, p, now, time_on(dag, machine, v, p));
      is_busy[p] = true;
      events.push({made.finish[v], false, v});
      arrivals.finished(v, made.finish[v], [&](std::uint32_t next) { events.push({arrivals.at(next), true, next}); });
    }
  }
  return made;
}

Emulation emulate_in_order(const OpDag& dag, const Machine& machine, const Placement& placement) {
  EXPECTS(placement.order.size() == machine.size());
  Emulation made = empty_emulation(dag, machine);
  Arrivals arrivals(dag, machine, placement.on);
  std::vector<std::size_t> next(machine.size(), 0);
  std::vector<Nanoseconds> free(machine.size(), 0);
  std::vector<std::uint32_t> may_run;
  for (std::uint32_t p = 0; p < machine.size(); ++p) may_run.push_back(p);
  std::size_t ran = 0;
  while (!may_run.empty()) {
    const std::uint32_t p = may_run.back();
    may_run.pop_back();
    const std::vector<std::uint32_t>& order = placement.order[p];
    while (next[p] < order.size() && arrivals.is_ready(order[next[p]])) {
      const std::uint32_t v = order[next[p]++];
      EXPECTS(placement.on[v] == p);
      run(made, v, p, std::max(free[p], arrivals.at(v)), time_on(dag, machine, v, p));
      free[p] = made.finish[v];
      ++ran;
      arrivals.finished(v, made.finish[v], [&](std::uint32_t ready) {
        const std::uint32_t q = placement.on[ready];
        if (q != p && next[q] < placement.order[q].size() && placement.order[q][next[q]] == ready) may_run.push_back(q);
      });
    }
  }
  EXPECTS(ran == dag.size);
  return made;
}

std::vector<std::int64_t> memory_of(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on,
                                    const Emulation& times) {
  struct Change {
    Nanoseconds time;
    std::int64_t bytes;
  };
  const std::size_t processors = machine.size();
  std::vector<std::vector<Change>> changes(processors);
  std::vector<std::int64_t> resident(processors, 0);
  const auto live = [&](std::size_t p, Nanoseconds from, Nanoseconds to, std::int64_t bytes) {
    if (bytes == 0 || to <= from) return;
    changes[p].push_back({from, bytes});
    changes[p].push_back({to, -bytes});
  };
  std::vector<Nanoseconds> first(processors), last(processors);
  std::vector<bool> reads(processors, false);
  std::vector<std::uint32_t> readers;  // processors
  for (const DagValue& value : dag.values) {
    readers.clear();
    for (const std::uint32_t r : value.readers) {
      const std::uint32_t p = on[r];
      if (!reads[p]) {
        reads[p] = true;
        readers.push_back(p);
        first[p] = times.start[r];
        last[p] = times.finish[r];
      }
      first[p] = std::min(first[p], times.start[r]);
      last[p] = std::max(last[p], times.finish[r]);
    }
    const bool is_made = value.maker != no_node;
    Nanoseconds until = is_made ? times.finish[value.maker] : 0;
    for (const std::uint32_t p : readers) {
      reads[p] = false;
      if (!is_made) {
        live(p, first[p], last[p], value.bytes);
      } else if (p == on[value.maker]) {
        until = std::max(until, last[p]);
      } else {
        const Nanoseconds made = times.finish[value.maker];
        until = std::max(until, made + machine.transfer(on[value.maker], p, value.bytes));
        live(p, made, last[p], value.bytes);
      }
    }
    if (is_made) live(on[value.maker], times.start[value.maker], until, value.bytes);
  }
  for (std::uint32_t v = 0; v < dag.size; ++v) live(on[v], times.start[v], times.finish[v], dag.workspace[v]);
  for (const DagResident& resident_value : dag.residents) {
    readers.clear();
    for (const std::uint32_t u : resident_value.users) {
      const std::uint32_t p = on[u];
      first[p] = reads[p] ? std::min(first[p], times.start[u]) : times.start[u];
      if (!reads[p]) readers.push_back(p);
      reads[p] = true;
    }
    for (const std::uint32_t p : readers) {
      reads[p] = false;
      if (resident_value.appears) {
        live(p, first[p], times.makespan, resident_value.bytes);
      } else {
        resident[p] += resident_value.bytes;
      }
    }
  }
  std::vector<std::int64_t> peaks(processors);
  for (std::size_t p = 0; p < processors; ++p) {
    std::ranges::sort(changes[p], [](const Change& a, const Change& b) {
      return std::tie(a.time, a.bytes) < std::tie(b.time, b.bytes);  // what dies makes room first
    });
    std::int64_t now = resident[p];
    peaks[p] = now;
    for (const Change& change : changes[p]) peaks[p] = std::max(peaks[p], now += change.bytes);
  }
  return peaks;
}

}  // namespace plimsoll
