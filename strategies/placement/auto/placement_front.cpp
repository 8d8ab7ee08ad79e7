#include "strategies/placement/auto/placement_front.h"

#include <algorithm>
#include <random>
#include <tuple>

#include "strategies/api/front.h"

namespace plimsoll {
namespace {

/// The nodes that the last op to end waits for, one by one, last first: an input that arrives as the op starts, or else
/// what its processor ran before.
std::vector<std::uint32_t> critical_nodes(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on,
                                          const Emulation& times) {
  std::vector<std::uint32_t> before(dag.size, no_node);  // on the same processor
  for (const std::vector<std::uint32_t>& order : times.order) {
    for (std::size_t i = 1; i < order.size(); ++i) before[order[i]] = order[i - 1];
  }
  std::vector<std::uint32_t> path;
  if (dag.size == 0) return path;
  auto v = static_cast<std::uint32_t>(std::ranges::max_element(times.finish) - times.finish.begin());
  while (v != no_node) {
    path.push_back(v);
    std::uint32_t next = before[v] != no_node && times.finish[before[v]] == times.start[v] ? before[v] : no_node;
    for (const DagEdge& edge : dag.in[v]) {
      const Nanoseconds sent = edge.sends ? machine.transfer(on[edge.node], on[v], edge.bytes) : 0;
      if (times.finish[edge.node] + sent == times.start[v]) next = edge.node;
    }
    v = next;
  }
  return path;
}

class LocalSearch {
 public:
  LocalSearch(const OpDag& dag, const Machine& machine, const Units& units, ScoredPlacement from,
              const JudgePlacement& judge, std::size_t evaluations, std::uint64_t seed)
      : dag_(dag),
        machine_(machine),
        units_(units),
        judge_(judge),
        best_(std::move(from)),
        left_(evaluations),
        random_(seed) {}

  ScoredPlacement run() && {
    if (units_.field.size() < 2) return std::move(best_);
    while (left_ > 0 && improve_once()) {
    }
    return std::move(best_);
  }

 private:
  std::uint32_t below(std::size_t bound) { return static_cast<std::uint32_t>((random_() >> 33) % bound); }

  /// Looks at the units that matter in the best placement, in a random order, until a move helps.
  bool improve_once() {
    const Emulation times = emulate(dag_, machine_, best_);
    std::vector<std::uint32_t> nodes = critical_nodes(dag_, machine_, best_.placement.on, times);
    if (best_.score.too_full > 0) add_fullest(times, nodes);
    if (nodes.size() < most_listed) add_others(nodes);
    for (std::size_t i = nodes.size(); i > 1; --i) std::swap(nodes[i - 1], nodes[below(i)]);
    for (const std::uint32_t v : nodes) {
      if (!units_.is_free[units_.of[v]]) continue;
      for (const std::uint32_t p : targets(v)) {
        if (left_ == 0) return false;
        if (try_move(v, p, 1)) return true;
        if (left_ > 0 && try_move(v, p, 2 + below(6))) return true;
      }
    }
    return false;
  }

  void add_fullest(const Emulation& times, std::vector<std::uint32_t>& nodes) const {
    const std::vector<std::int64_t> bytes = memory_of(dag_, machine_, best_.placement.on, times);
    std::size_t fullest = 0;
    const auto above = [&](std::size_t p) { return bytes[p] - machine_.memory[p]; };
    for (std::size_t p = 1; p < bytes.size(); ++p) {
      if (above(p) > above(fullest)) fullest = p;
    }
    nodes.insert(nodes.end(), times.order[fullest].begin(), times.order[fullest].end());
  }

  void add_others(std::vector<std::uint32_t>& nodes) {
    for (std::size_t k = nodes.size(); k < std::min<std::size_t>(most_listed, dag_.size); ++k)
      nodes.push_back(below(dag_.size));
  }

  std::vector<std::uint32_t> targets(std::uint32_t v) {
    std::vector<std::uint32_t> found;
    const auto add = [&](std::uint32_t p) {
      const bool may = p != best_.placement.on[v] && std::ranges::find(units_.field, p) != units_.field.end();
      if (may && std::ranges::find(found, p) == found.end() && found.size() < most_targets) found.push_back(p);
    };
    if (units_.field.size() <= most_targets) {
      for (const std::uint32_t p : units_.field) add(p);
      return found;
    }
    for (const DagEdge& edge : dag_.in[v]) add(best_.placement.on[edge.node]);
    for (const DagEdge& edge : dag_.out[v]) add(best_.placement.on[edge.node]);
    add(units_.field[below(units_.field.size())]);
    return found;
  }

  /// The node's unit, and up to `count` in all of those that follow it on its processor by edges.
  bool try_move(std::uint32_t v, std::uint32_t to, std::uint32_t count) {
    const std::uint32_t from = best_.placement.on[v];
    Placement moved{best_.placement.on, {}};
    for (std::uint32_t at = v; count > 0; --count) {
      if (units_.is_free[units_.of[at]]) {
        for (const std::uint32_t each : units_.nodes[units_.of[at]]) moved.on[each] = to;
      }
      const auto stays = [&](const DagEdge& edge) { return moved.on[edge.node] == from; };
      const auto next = std::ranges::find_if(dag_.out[at], stays);
      if (next == dag_.out[at].end()) break;
      at = next->node;
    }
    ScoredPlacement scored{std::move(moved), QueueOrder::fifo, {}};
    bool is_first = true;
    for (const QueueOrder by : orders_without_search) {
      if (left_ == 0) break;
      --left_;
      const PlacementScore score = judge_(scored.placement.on, emulate(dag_, machine_, scored.placement.on, by));
      if (is_first || score < scored.score) {
        scored.score = score;
        scored.order = by;
      }
      is_first = false;
    }
    if (is_first || !(scored.score < best_.score)) return false;
    best_ = std::move(scored);
    return true;
  }

  static constexpr std::size_t most_listed = 64, most_targets = 4;
  const OpDag& dag_;
  const Machine& machine_;
  const Units& units_;
  const JudgePlacement& judge_;
  ScoredPlacement best_;
  std::size_t left_;
  std::mt19937_64 random_;
};

/// All placements, one after the other.
class Placements {
 public:
  Placements(const Machine& machine, const Units& units) : units_(units), is_alike_(are_alike(machine, units)) {
    Assignment rest(units);
    for (std::uint32_t u = 0; u < units.size(); ++u) {
      if (!units.is_free[u]) continue;
      free_.push_back(u);
      rest.put(u, units.field.front());
    }
    rest.put_rest();
    on_ = rest.placement().on;
    digit_.assign(free_.size(), 0);
  }

  double count() const {
    double count = 1;
    for (std::size_t f = 0; f < free_.size(); ++f) count *= static_cast<double>(units_.field.size());
    return count;
  }

  std::span<const std::uint32_t> on() const { return on_; }

  /// On to the next one; false after the last.
  bool next() {
    for (std::size_t f = free_.size(); f-- > 0;) {
      const std::size_t most = is_alike_ ? first_unused(f) : units_.field.size() - 1;
      if (digit_[f] < most) {
        put(f, digit_[f] + 1);
        return true;
      }
      put(f, 0);
    }
    return false;
  }

 private:
  /// Whether nothing changes when two of the field change names.
  static bool are_alike(const Machine& machine, const Units& units) {
    const auto route = [&](std::size_t p, std::size_t q) {
      return std::pair(machine.latency[p * machine.size() + q], machine.nanoseconds_per_byte[p * machine.size() + q]);
    };
    const std::uint32_t one = units.field.front(), other = units.field.back();
    for (const std::uint32_t p : units.field) {
      if (machine.class_of[p] != machine.class_of[one] || machine.memory[p] != machine.memory[one]) return false;
      for (std::uint32_t q = 0; q < machine.size(); ++q) {
        if (p == q) continue;
        const bool is_inside = std::ranges::binary_search(units.field, q);
        const auto there = is_inside ? route(one, other) : route(one, q);
        const auto back = is_inside ? route(one, other) : route(q, one);
        if (route(p, q) != there || route(q, p) != back) return false;
      }
    }
    return true;
  }

  /// The first of the field that none of the units before this one is on, or the last.
  std::size_t first_unused(std::size_t f) const {
    std::size_t used = 0;
    for (std::size_t before = 0; before < f; ++before) used = std::max(used, digit_[before] + 1);
    return std::min(used, units_.field.size() - 1);
  }

  void put(std::size_t f, std::size_t digit) {
    digit_[f] = digit;
    for (const std::uint32_t v : units_.nodes[free_[f]]) on_[v] = units_.field[digit];
  }

  const Units& units_;
  bool is_alike_;
  std::vector<std::uint32_t> free_;  // units
  std::vector<std::size_t> digit_;   // by position in `free_`: position in the field
  std::vector<std::uint32_t> on_;
};

/// What a search through orders asks and finds.
struct OrderVisitor {
  std::function<bool(std::int64_t bytes, Nanoseconds makespan)> is_beaten;
  std::function<void(std::span<const std::uint32_t> on, const Emulation&, std::int64_t bytes)> visit;
  std::size_t steps_left = 0;
};

/// All orders of one placement that may not be beaten, ops taken by start, finish and number, which reaches each once.
class OrderSearch {
 public:
  OrderSearch(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on, OrderVisitor& visitor)
      : dag_(dag),
        machine_(machine),
        on_(on),
        visitor_(visitor),
        path_(dag.size, 0),
        ready_(dag.size, 0),
        waits_(dag.size),
        free_(machine.size(), 0),
        work_(machine.size(), 0),
        least_bytes_(least_bytes()) {
    made_.start.resize(dag.size);
    made_.finish.resize(dag.size);
    made_.order.resize(machine.size());
    for (std::uint32_t v = dag.size; v-- > 0;) {
      for (const DagEdge& edge : dag.out[v]) path_[v] = std::max(path_[v], sent(v, edge) + path_[edge.node]);
      const Nanoseconds time = time_on(dag, machine, v, on[v]);
      path_[v] += time;
      work_[on[v]] += time;
      waits_[v] = dag.in[v].size();
    }
  }

  void run() {
    if (!visitor_.is_beaten(least_bytes_, earliest_end())) extend(0);
  }

 private:
  using Key = std::tuple<Nanoseconds, Nanoseconds, std::uint32_t>;

  Nanoseconds sent(std::uint32_t v, const DagEdge& edge) const {
    return edge.sends ? machine_.transfer(on_[v], on_[edge.node], edge.bytes) : 0;
  }

  /// On the fullest processor, in any order.
  std::int64_t least_bytes() const {
    std::vector<std::int64_t> resident(machine_.size(), 0), most(machine_.size(), 0);
    for (const DagResident& each : dag_.residents) {
      if (each.appears) continue;  // perhaps behind the fullest moment
      for (std::uint32_t p = 0; p < machine_.size(); ++p) {
        if (std::ranges::any_of(each.users, [&](std::uint32_t v) { return on_[v] == p; })) resident[p] += each.bytes;
      }
    }
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      if (time_on(dag_, machine_, v, on_[v]) == 0) continue;
      std::int64_t bytes = dag_.workspace[v];
      for (const std::uint32_t value : dag_.makes[v]) bytes += dag_.values[value].bytes;
      for (const std::uint32_t value : dag_.reads[v]) bytes += dag_.values[value].bytes;
      most[on_[v]] = std::max(most[on_[v]], bytes);
    }
    std::int64_t fullest = 0;
    for (std::size_t p = 0; p < most.size(); ++p) fullest = std::max(fullest, most[p] + resident[p]);
    return fullest;
  }

  Nanoseconds earliest_end() const {
    Nanoseconds end = 0;
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      if (waits_[v] == done) continue;
      end = std::max(end, std::max({std::get<0>(last_), ready_[v], free_[on_[v]]}) + path_[v]);
    }
    for (std::size_t p = 0; p < free_.size(); ++p) end = std::max(end, free_[p] + work_[p]);
    return end;
  }

  void extend(std::uint32_t taken) {
    if (taken == dag_.size) {
      made_.makespan = std::ranges::max(made_.finish);
      visitor_.visit(on_, made_, std::ranges::max(memory_of(dag_, machine_, on_, made_)));
      return;
    }
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      if (waits_[v] != 0) continue;
      const Nanoseconds start = std::max(ready_[v], free_[on_[v]]);
      const Key key{start, start + time_on(dag_, machine_, v, on_[v]), v};
      if (key < last_) continue;
      if (visitor_.steps_left == 0) return;
      --visitor_.steps_left;
      take(v, key, taken);
    }
  }

  void take(std::uint32_t v, const Key& key, std::uint32_t taken) {
    const std::uint32_t p = on_[v];
    const Key last_before = last_;
    const Nanoseconds free_before = free_[p];
    std::vector<Nanoseconds> ready_before;
    std::tie(made_.start[v], made_.finish[v], std::ignore) = key;
    last_ = key;
    free_[p] = made_.finish[v];
    work_[p] -= made_.finish[v] - made_.start[v];
    made_.order[p].push_back(v);
    waits_[v] = done;
    for (const DagEdge& edge : dag_.out[v]) {
      ready_before.push_back(ready_[edge.node]);
      ready_[edge.node] = std::max(ready_[edge.node], made_.finish[v] + sent(v, edge));
      --waits_[edge.node];
    }
    if (!visitor_.is_beaten(least_bytes_, earliest_end())) extend(taken + 1);
    for (std::size_t e = 0; e < ready_before.size(); ++e) {
      const std::uint32_t next = dag_.out[v][e].node;
      ready_[next] = ready_before[e];
      ++waits_[next];
    }
    waits_[v] = 0;
    made_.order[p].pop_back();
    work_[p] += made_.finish[v] - made_.start[v];
    free_[p] = free_before;
    last_ = last_before;
  }

  static constexpr std::size_t done = SIZE_MAX;
  const OpDag& dag_;
  const Machine& machine_;
  const std::span<const std::uint32_t> on_;
  OrderVisitor& visitor_;
  std::vector<Nanoseconds> path_;   // by node: the longest path from it, with transfers
  std::vector<Nanoseconds> ready_;  // by node: when all that has been taken has arrived
  std::vector<std::size_t> waits_;  // by node: for so many; or `done`
  std::vector<Nanoseconds> free_;   // by processor
  std::vector<Nanoseconds> work_;   // by processor: not taken yet
  Emulation made_;
  Key last_{0, 0, 0};
  std::int64_t least_bytes_;
};

void visit_orders(const OpDag& dag, const Machine& machine, const Units& units, OrderVisitor& visitor) {
  Placements placements(machine, units);
  do {
    OrderSearch(dag, machine, placements.on(), visitor).run();
  } while (placements.next() && visitor.steps_left > 0);
}

}  // namespace

Emulation emulate(const OpDag& dag, const Machine& machine, const ScoredPlacement& scored) {
  const Placement& placement = scored.placement;
  return placement.order.empty() ? emulate(dag, machine, placement.on, scored.order)
                                 : emulate_in_order(dag, machine, placement);
}

PlacementScore score_of(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on,
                        const Emulation& times) {
  PlacementScore score{0, times.makespan};
  const auto is_limited = [](std::int64_t limit) { return limit != unlimited_bytes; };
  if (std::ranges::none_of(machine.memory, is_limited)) return score;
  const std::vector<std::int64_t> bytes = memory_of(dag, machine, on, times);
  for (std::size_t p = 0; p < bytes.size(); ++p) {
    if (is_limited(machine.memory[p])) score.too_full = std::max(score.too_full, bytes[p] - machine.memory[p]);
  }
  return score;
}

ScoredPlacement best_ordered(const OpDag& dag, const Machine& machine, Placement placement) {
  ScoredPlacement best{std::move(placement), QueueOrder::fifo, {}};
  const auto score = [&](const Emulation& times) { return score_of(dag, machine, best.placement.on, times); };
  bool is_first = best.placement.order.empty();
  if (!is_first) best.score = score(emulate_in_order(dag, machine, best.placement));
  for (const QueueOrder by : orders_without_search) {
    const PlacementScore found = score(emulate(dag, machine, best.placement.on, by));
    if (!is_first && !(found < best.score)) continue;
    best.score = found;
    best.order = by;
    best.placement.order.clear();
    is_first = false;
  }
  return best;
}

ScoredPlacement improved(const OpDag& dag, const Machine& machine, const Units& units, ScoredPlacement from,
                         const JudgePlacement& judge, std::size_t evaluations, std::uint64_t seed) {
  return LocalSearch(dag, machine, units, std::move(from), judge, evaluations, seed).run();
}

PlacementFront placement_front(const OpDag& dag, const Machine& machine, const Units& units,
                               std::size_t most_placements, std::size_t most_steps) {
  if (Placements(machine, units).count() > static_cast<double>(most_placements)) return {};
  FrontOf<FrontPlacement, Nanoseconds> front;
  const auto is_beaten = [&](std::int64_t bytes, Nanoseconds makespan) { return front.beats(Bytes{bytes}, makespan); };
  const auto visit = [&](std::span<const std::uint32_t> on, const Emulation& times, std::int64_t bytes) {
    if (is_beaten(bytes, times.makespan)) return;
    front.add(Bytes{bytes}, times.makespan, {{{on.begin(), on.end()}, times.order}, bytes, times.makespan});
  };
  Placements placements(machine, units);
  do {
    for (const QueueOrder by : orders_without_search) {
      const Emulation times = emulate(dag, machine, placements.on(), by);
      visit(placements.on(), times, std::ranges::max(memory_of(dag, machine, placements.on(), times)));
    }
  } while (placements.next());
  OrderVisitor visitor{.is_beaten = is_beaten, .visit = visit, .steps_left = most_steps};
  visit_orders(dag, machine, units, visitor);
  return {std::move(front).plans(), visitor.steps_left > 0};
}

std::vector<NearPlacement> near_placements(const OpDag& dag, const Machine& machine, const Units& units,
                                           std::size_t most_placements, std::size_t most_steps, std::size_t most,
                                           const std::function<bool(std::int64_t, Nanoseconds)>& is_beaten) {
  std::vector<NearPlacement> found;
  if (Placements(machine, units).count() > static_cast<double>(most_placements)) return found;
  OrderVisitor visitor{.is_beaten = is_beaten, .visit = {}, .steps_left = most_steps};
  visitor.visit = [&](std::span<const std::uint32_t> on, const Emulation& times, std::int64_t bytes) {
    if (is_beaten(bytes, times.makespan)) return;
    found.push_back({{{on.begin(), on.end()}, times.order}, times.makespan});
    if (found.size() == most) visitor.steps_left = 0;
  };
  visit_orders(dag, machine, units, visitor);
  std::ranges::stable_sort(found, {}, &NearPlacement::makespan);
  return found;
}

}  // namespace plimsoll
