#include "strategies/placement/pardnn/pardnn_memory.h"

#include <algorithm>
#include <queue>

#include "strategies/placement/memory_tracker.h"

// Source: Qararyah et al., "A computational-graph partitioning method for training memory-constrained DNNs" (ParDNN),
// Parallel Computing 2021, section 3.2. At each instant from the end of the schedule at which a processor has O bytes
// too much, units of a potential of O in sum leave it that cost least: their time and what they exchange there.
// Here also: all users of a resident on one processor move together; times are emulated again when all processors
// have been relieved. O(V^2) at worst.

namespace plimsoll {
namespace {

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

}  // namespace

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

}  // namespace plimsoll
