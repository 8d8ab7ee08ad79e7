#include "strategies/placement/pardnn/pardnn.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "strategies/placement/emulation.h"
#include "strategies/placement/memory_tracker.h"
#include "strategies/placement/pardnn/pardnn_balance.h"
#include "strategies/placement/pardnn/pardnn_mapping.h"
#include "strategies/placement/pardnn/pardnn_refine.h"
#include "strategies/placement/units.h"

namespace plimsoll {
namespace {

// ParDNN's memory heuristic I: what does not fit in an emulation moves, until all fits.

struct Relieved {
  std::vector<std::uint32_t> on;  ///< by node: processor
  bool fits = false;              ///< by memory_of() of the emulation, on each processor
  std::int64_t reached = 0;       ///< if not: the largest peak beyond its limit, of the best round
};

constexpr int most_rounds = 10;
constexpr std::size_t most_targets = 4, most_in_bundle = 8, most_refreshed = 256;

/// Units that would move together.
struct Leaving {
  std::vector<std::uint32_t> units;
  std::int64_t potential = 0;  // bytes
  Nanoseconds cost = 0;
};

class OverflowHandler {
 public:
  OverflowHandler(const OpDag& dag, const Machine& machine, const Units& units, MemoryTracker& tracker,
                  const Emulation& times, std::vector<bool>& has_moved)
      : dag_(dag),
        machine_(machine),
        units_(units),
        tracker_(tracker),
        times_(times),
        has_moved_(has_moved),
        is_discarded_(units.size(), false),
        potential_(units.size(), 0) {}

  /// Whether something has moved.
  bool relieve(std::uint32_t p) {
    find_items(p);
    bool has_moved = false;
    std::size_t waiting = 0;  // items before this one reach the slot
    std::vector<Item> active;
    Queues queues;
    queues.slot = tracker_.slots();
    auto slot = tracker_.profile(p).last_above(machine_.memory[p], tracker_.slots());
    while (slot) {
      for (; waiting < items_.size() && items_[waiting].slots.end > *slot; ++waiting) {
        active.push_back(items_[waiting]);
      }
      std::erase_if(active, [&](const Item& item) { return item.slots.first > *slot; });
      if (queues.slot - *slot <= tracker_.slots() / most_refreshed)
        has_moved = relieve_slot(p, *slot, queues) || has_moved;
      for (bool is_better = true; is_better && tracker_.profile(p).at(*slot) > machine_.memory[p];) {
        queues = queues_at(p, *slot, active);
        is_better = relieve_slot(p, *slot, queues);
        has_moved = has_moved || is_better;
      }
      slot = tracker_.profile(p).last_above(machine_.memory[p], *slot);
    }
    return has_moved;
  }

 private:
  enum class Kind : std::uint8_t { value, workspace };
  struct Item {
    Kind kind;
    std::uint32_t number;  // of the value or node
    MemoryTracker::Slots slots;
  };

  /// What is on the processor, the last to go first. Only less is there when some of it has moved.
  void find_items(std::uint32_t p) {
    items_.clear();
    residents_.clear();
    for (std::uint32_t value = 0; value < dag_.values.size(); ++value) {
      const MemoryTracker::Slots slots = tracker_.slots_of_value(value, p);
      if (slots.first < slots.end && dag_.values[value].bytes > 0) items_.push_back({Kind::value, value, slots});
    }
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      if (tracker_.on()[v] != p || dag_.workspace[v] == 0) continue;
      items_.push_back({Kind::workspace, v, tracker_.slots_of_node(v)});
    }
    std::ranges::stable_sort(items_, std::greater<>(), [](const Item& item) { return item.slots.end; });
    for (std::uint32_t r = 0; r < dag_.residents.size(); ++r) {
      const auto is_here = [&](std::uint32_t v) { return tracker_.on()[v] == p; };
      if (std::ranges::any_of(dag_.residents[r].users, is_here)) residents_.push_back(r);
    }
  }

  /// What may leave at a slot, by cost a byte, and of what is enough alone by cost. It serves the slots just before,
  /// too, of which a large graph has many.
  struct Queues {
    using Rank = std::pair<double, std::size_t>;
    using Queue = std::priority_queue<Rank, std::vector<Rank>, std::greater<>>;
    std::size_t slot = 0;
    std::vector<Leaving> leaving;
    Queue by_ratio, by_cost;
  };

  Queues queues_at(std::uint32_t p, std::size_t slot, const std::vector<Item>& active) {
    Queues made{.slot = slot, .leaving = candidates(p, slot, active), .by_ratio = {}, .by_cost = {}};
    const std::int64_t over = tracker_.profile(p).at(slot) - machine_.memory[p];
    for (std::size_t i = 0; i < made.leaving.size(); ++i) {
      const auto cost = static_cast<double>(made.leaving[i].cost);
      made.by_ratio.push({cost / static_cast<double>(made.leaving[i].potential), i});
      if (made.leaving[i].potential >= over) made.by_cost.push({cost, i});
    }
    return made;
  }

  /// Whether something has moved.
  bool relieve_slot(std::uint32_t p, std::size_t slot, Queues& queues) {
    bool has_moved = false;
    while (!queues.by_ratio.empty() && tracker_.profile(p).at(slot) > machine_.memory[p]) {
      const std::vector<Leaving>& leaving = queues.leaving;
      const bool is_alone = !queues.by_cost.empty() &&
                            leaving[queues.by_cost.top().second].cost < leaving[queues.by_ratio.top().second].cost;
      Queues::Queue& from = is_alone ? queues.by_cost : queues.by_ratio;
      const Leaving& next = leaving[from.top().second];
      from.pop();
      if (!std::ranges::all_of(next.units, [&](std::uint32_t u) { return may_leave(u, p); })) continue;
      has_moved = leave(p, slot, next) || has_moved;
    }
    return has_moved;
  }

  bool may_leave(std::uint32_t u, std::uint32_t p) const {
    return !has_moved_[u] && !is_discarded_[u] && tracker_.on()[units_.nodes[u].front()] == p;
  }

  std::vector<Leaving> candidates(std::uint32_t p, std::size_t slot, const std::vector<Item>& active) {
    std::vector<std::uint32_t> found;
    const auto note = [&](std::uint32_t unit, std::int64_t bytes) {
      if (bytes == 0 || !may_leave(unit, p)) return;
      if (potential_[unit] == 0) found.push_back(unit);
      potential_[unit] += bytes;
    };
    for (const Item& item : active) {
      if (item.kind == Kind::workspace) {
        note(units_.of[item.number], dag_.workspace[item.number]);
      } else if (tracker_.slots_of_value(item.number, p).covers(slot)) {
        note_value(item.number, p, slot, note);
      }
    }
    std::vector<Leaving> made;
    for (const std::uint32_t r : residents_) {
      std::vector<std::uint32_t> users = units_here(dag_.residents[r], p);
      if (users.size() == 1) note(users.front(), dag_.residents[r].bytes);
      if (users.size() < 2 || users.size() > most_in_bundle || dag_.residents[r].bytes == 0) continue;
      if (!std::ranges::all_of(users, [&](std::uint32_t u) { return may_leave(u, p); })) continue;
      made.push_back({std::move(users), dag_.residents[r].bytes, 0});
    }
    for (Leaving& bundle : made) {
      for (const std::uint32_t u : bundle.units) bundle.potential += potential_[u];
    }
    for (const std::uint32_t u : found) {
      made.push_back({{u}, potential_[u], 0});
      potential_[u] = 0;
    }
    for (Leaving& each : made) {
      for (const std::uint32_t u : each.units) each.cost += move_cost(u, p);
    }
    return made;
  }

  /// Those without which the value would not be there: its maker's unit, and that of its last reader.
  template <class Note>
  void note_value(std::uint32_t value, std::uint32_t p, std::size_t slot, Note note) const {
    const DagValue& each = dag_.values[value];
    std::uint32_t last = no_node;
    for (const std::uint32_t r : each.readers) {
      if (tracker_.on()[r] == p && (last == no_node || times_.finish[r] > times_.finish[last])) last = r;
    }
    const bool is_home = each.maker != no_node && tracker_.on()[each.maker] == p;
    const std::uint32_t maker = is_home ? units_.of[each.maker] : no_node;
    const std::uint32_t reader = last == no_node ? no_node : units_.of[last];
    if (maker != no_node && !is_there_without(value, p, maker, slot)) note(maker, each.bytes);
    if (reader == no_node || reader == maker || is_there_without(value, p, reader, slot)) return;
    note(reader, each.bytes);
  }

  /// Whether the value is there then if a unit has left the processor.
  bool is_there_without(std::uint32_t value, std::uint32_t p, std::uint32_t unit, std::size_t slot) const {
    const DagValue& each = dag_.values[value];
    const auto is_here = [&](std::uint32_t v) { return tracker_.on()[v] == p && units_.of[v] != unit; };
    const bool is_home = each.maker != no_node && is_here(each.maker);
    Nanoseconds first = cannot_run, last = is_home ? times_.finish[each.maker] : 0;
    for (const std::uint32_t r : each.readers) {
      if (!is_here(r)) continue;
      first = std::min(first, times_.start[r]);
      last = std::max(last, times_.finish[r]);
    }
    if (each.maker != no_node) first = is_home ? times_.start[each.maker] : times_.finish[each.maker];
    return tracker_.slots_between(first, last).covers(slot);
  }

  std::vector<std::uint32_t> units_here(const DagResident& resident, std::uint32_t p) const {
    std::vector<std::uint32_t> here;
    for (const std::uint32_t v : resident.users) {
      if (tracker_.on()[v] == p) here.push_back(units_.of[v]);
    }
    std::ranges::sort(here);
    here.erase(std::unique(here.begin(), here.end()), here.end());
    return here;
  }

  /// Its time there and the transfers that would begin: equation 4.
  Nanoseconds move_cost(std::uint32_t u, std::uint32_t p) const {
    Nanoseconds cost = units_.time[p][u];
    for (const std::uint32_t v : units_.nodes[u]) {
      for (const auto& edges : {dag_.in[v], dag_.out[v]}) {
        for (const DagEdge& edge : edges) {
          const bool is_new = edge.sends && tracker_.on()[edge.node] == p && units_.of[edge.node] != u;
          if (is_new) cost += machine_.mean_transfer(edge.bytes);
        }
      }
    }
    return cost;
  }

  /// To the processor of the least peak that keeps its limit with it, if one of the first few does; else it stays for
  /// good, unless it is a bundle, whose units may move alone.
  bool leave(std::uint32_t p, std::size_t slot, const Leaving& leaving) {
    std::vector<std::uint32_t> targets, nodes;
    for (std::uint32_t q = 0; q < machine_.size(); ++q) {
      const auto can = [&](std::uint32_t u) { return units_.time[q][u] != cannot_run; };
      if (q != p && std::ranges::all_of(leaving.units, can)) targets.push_back(q);
    }
    std::ranges::stable_sort(targets, {}, [&](std::uint32_t q) { return tracker_.profile(q).peak(); });
    if (targets.size() > most_targets) targets.resize(most_targets);
    for (const std::uint32_t u : leaving.units) {
      nodes.insert(nodes.end(), units_.nodes[u].begin(), units_.nodes[u].end());
    }
    const std::int64_t before = tracker_.profile(p).at(slot);
    for (const std::uint32_t q : targets) {
      const std::int64_t most = std::max(machine_.memory[q], tracker_.profile(q).peak());
      tracker_.move(nodes, q);
      const bool is_less = tracker_.profile(p).at(slot) < before;
      if (is_less && tracker_.profile(q).peak() <= most) {
        for (const std::uint32_t u : leaving.units) has_moved_[u] = true;
        return true;
      }
      tracker_.move(nodes, p);
      if (!is_less) return false;
    }
    if (leaving.units.size() == 1) is_discarded_[leaving.units.front()] = true;
    return false;
  }

  const OpDag& dag_;
  const Machine& machine_;
  const Units& units_;
  MemoryTracker& tracker_;
  const Emulation& times_;
  std::vector<bool>& has_moved_;
  std::vector<bool> is_discarded_;
  std::vector<std::int64_t> potential_;  // by unit: at one slot
  std::vector<Item> items_;
  std::vector<std::uint32_t> residents_;  // on the processor
};

/// Moves units between processors until the emulation keeps their limits. Each moves once at most. Groups are together
/// in `on`.
Relieved relieved(const OpDag& dag, const Machine& machine, const Units& units, std::vector<std::uint32_t> on,
                  QueueOrder order) {
  Relieved made{.on = std::move(on), .fits = false, .reached = unlimited_bytes};
  std::vector<bool> has_moved(units.size(), false);
  for (int round = 0; round < most_rounds; ++round) {
    const Emulation times = emulate(dag, machine, made.on, order);
    const std::vector<std::int64_t> peaks = memory_of(dag, machine, made.on, times);
    std::vector<std::uint32_t> over;
    std::int64_t most = 0;
    for (std::uint32_t p = 0; p < machine.size(); ++p) {
      if (peaks[p] <= machine.memory[p]) continue;
      over.push_back(p);
      most = std::max(most, peaks[p]);
    }
    made.fits = over.empty();
    if (made.fits) return made;
    made.reached = std::min(made.reached, most);
    MemoryTracker tracker(dag, machine, made.on, times);
    OverflowHandler handler(dag, machine, units, tracker, times, has_moved);
    bool is_new = false;
    for (const std::uint32_t p : over) is_new = handler.relieve(p) || is_new;
    if (!is_new) break;
    made.on = tracker.on();
  }
  return made;
}

struct PardnnChoice : PlacingOptions {
  PardnnMemory memory = PardnnMemory::moves;
  bool refines = false;
};

constexpr auto pardnn_options = options_of<PardnnChoice>(
    place_on_option, homes_option, queue_option, usable_option,
    option_of<&PardnnChoice::memory>(
        {.name = "memory",
         .words = "none 1 2",
         .help = "none: memory is ignored; 1: ops that do not fit in an emulation move; 2: the longest path is split "
                 "and parameters are balanced before the emulation; where it then does not fit, nothing is placed"}),
    option_of<&PardnnChoice::refines>({.name = "refine",
                                       .words = "none v1",
                                       .help = "none: paths stay where they are mapped; v1: before memory is looked "
                                               "at, paths and ops change devices where an "
                                               "emulation then ends earlier, as in ParDNN's first version"}));

std::vector<PartitionOutcome> pardnn_partition(const Problem& problem, const PardnnChoice& options,
                                               std::span<const std::optional<Bytes>> budgets) {
  const PardnnOptions asked{.memory = options.memory,
                            .refines = options.refines,
                            .order = options.order == AskedOrder::fifo ? QueueOrder::fifo : QueueOrder::b_level};
  return placed(problem, options, "pardnn", budgets, asked.memory != PardnnMemory::ignored,
                [&](const OpDag& dag, const Machine& machine) { return place_pardnn(dag, machine, asked); });
}

/// The largest limit of the field, raised to this.
Machine with_limit(Machine machine, const Units& units, std::int64_t limit) {
  std::int64_t most = 0;
  for (const std::uint32_t p : units.field) most = std::max(most, machine.memory[p]);
  for (const std::uint32_t p : units.field) {
    if (machine.memory[p] == most) machine.memory[p] = std::max(most, limit);
  }
  return machine;
}

/// A limit that is enough: what was reached, if it is reached again with it as the limit, else what is needed if
/// nothing moves.
std::optional<Bytes> limit_that_is_enough(const OpDag& dag, const Machine& machine, const PardnnMapping& mapping,
                                          QueueOrder order, std::int64_t reached) {
  constexpr int most_trials = 3;
  const auto fits = [&](std::int64_t limit) {
    const Relieved again = relieved(dag, with_limit(machine, mapping.units, limit), mapping.units, mapping.on, order);
    reached = std::max(again.reached, limit + 1);
    return again.fits;
  };
  for (int trial = 0; trial < most_trials; ++trial) {
    const std::int64_t limit = reached;
    if (fits(limit)) return Bytes{limit};
  }
  const Emulation times = emulate(dag, machine, mapping.on, order);
  const std::int64_t most = std::ranges::max(memory_of(dag, machine, mapping.on, times));
  if (fits(most)) return Bytes{most};
  return std::nullopt;
}

/// How long the processor that sends or receives most does so, if it has one link for all others.
Nanoseconds longest_port(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on) {
  std::vector<Nanoseconds> sends(machine.size(), 0), receives(machine.size(), 0);
  std::vector<std::uint32_t> there;
  for (const DagValue& value : dag.values) {
    if (value.maker == no_node) continue;
    there.clear();
    for (const std::uint32_t r : value.readers) there.push_back(on[r]);
    std::ranges::sort(there);
    there.erase(std::unique(there.begin(), there.end()), there.end());
    const std::uint32_t from = on[value.maker];
    for (const std::uint32_t p : there) {
      const Nanoseconds time = machine.transfer(from, p, value.bytes) - machine.transfer(from, p, 0);
      sends[from] += time;
      receives[p] += time;
    }
  }
  return std::max(std::ranges::max(sends), std::ranges::max(receives));
}

/// The better of two: groups come together after paths have been mapped, as in the paper; or they are placed by loads,
/// and other nodes where they exchange most. By the end of the emulation, which knows nothing of transfers that wait
/// for each other, and the time that one processor's transfers take.
PardnnMapping mapped(const OpDag& dag, const Machine& machine, const Units& units, LongestPath longest,
                     QueueOrder order) {
  PardnnMapping made = pardnn_mapping(dag, machine, units, longest);
  collocate(dag, machine, units, made.on);
  if (units.field.size() < 2) return made;
  const std::optional<std::vector<std::uint32_t>> near = near_groups(dag, machine, units);
  if (!near) return made;
  std::vector<std::uint32_t> other = made.on;
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    if (units.is_free[units.of[v]]) other[v] = (*near)[v];
  }
  const auto score = [&](std::span<const std::uint32_t> on) {
    return emulate(dag, machine, on, order).makespan + longest_port(dag, machine, on);
  };
  if (score(other) < score(made.on)) made.on = std::move(other);
  return made;
}

/// With parameters balanced, if what the emulation then needs is there; all depends on limits only by where there are
/// none, so what it needs is enough.
PlacementOutcome balanced(const OpDag& dag, const Machine& machine, const PardnnMapping& mapping, QueueOrder order) {
  std::vector<std::uint32_t> on = with_balanced_residents(dag, mapping.units, mapping.on);
  const std::vector<std::int64_t> peaks = memory_of(dag, machine, on, emulate(dag, machine, on, order));
  std::int64_t most = 0;
  bool fits = true, fits_beyond = true;  // beyond: off the field
  for (std::uint32_t p = 0; p < machine.size(); ++p) {
    const bool is_within = peaks[p] <= machine.memory[p];
    fits = fits && is_within;
    if (std::ranges::binary_search(mapping.units.field, p)) {
      most = std::max(most, peaks[p]);
    } else {
      fits_beyond = fits_beyond && is_within;
    }
  }
  if (fits) return Placement{std::move(on), {}};
  return Infeasible{.reason = "with parameters balanced, memory still overflows in the emulation",
                    .smallest = fits_beyond ? std::optional(Bytes{most}) : std::nullopt,
                    .smallest_is_proven = false};
}

}  // namespace

PlacementOutcome place_pardnn(const OpDag& dag, const Machine& machine, const PardnnOptions& options) {
  auto units = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&units)) return std::move(*none);
  const bool balances = options.memory == PardnnMemory::balance;
  PardnnMapping mapping =
      mapped(dag, machine, std::get<Units>(units), balances ? LongestPath::split : LongestPath::whole, options.order);
  if (options.refines) mapping.on = refined(dag, machine, mapping, options.order);
  if (options.memory == PardnnMemory::ignored) return Placement{mapping.on, {}};
  if (balances) return balanced(dag, machine, mapping, options.order);
  Relieved made = relieved(dag, machine, mapping.units, mapping.on, options.order);
  if (made.fits) return Placement{std::move(made.on), {}};
  return Infeasible{.reason = "ops that may move do not relieve the devices whose memory overflows",
                    .smallest = limit_that_is_enough(dag, machine, mapping, options.order, made.reached),
                    .smallest_is_proven = false};
}

extern constinit const StrategyInfo pardnn_strategy{
    .name = "pardnn",
    .family = Family::placement,
    .summary = "critical paths to devices, other paths by locality and load; ops that overflow memory move",
    .source =
        "Qararyah et al., 'A computational-graph partitioning method for training memory-constrained DNNs', Parallel "
        "Computing 2021",
    .options = pardnn_options,
    .kind = PartitionStrategy{.partition = by_options<pardnn_partition>},
};

}  // namespace plimsoll
