#include "strategies/placement/placement_search.h"

#include <algorithm>
#include <random>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

constexpr OrderBy orders_without_search[] = {OrderBy::fifo, OrderBy::b_level, OrderBy::number};

Emulation by_number(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on) {
  Placement placement{{on.begin(), on.end()}, std::vector<std::vector<std::uint32_t>>(machine.size())};
  for (std::uint32_t v = 0; v < dag.size; ++v) placement.order[on[v]].push_back(v);
  return emulate_in_order(dag, machine, placement);
}

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

/// Unless something there is as fast with as little.
void add_to(std::vector<FrontPlacement>& front, const OpDag& dag, const Machine& machine, const Placement& placement,
            OrderBy by) {
  const Emulation times = emulate(dag, machine, placement, by);
  const std::int64_t bytes = std::ranges::max(memory_of(dag, machine, placement.on, times));
  const auto behind = std::ranges::upper_bound(front, bytes, {}, &FrontPlacement::bytes);
  if (behind != front.begin() && std::prev(behind)->makespan <= times.makespan) return;
  auto first = behind;
  while (first != front.begin() && std::prev(first)->bytes == bytes) --first;
  auto last = first;
  while (last != front.end() && last->makespan >= times.makespan) ++last;
  front.insert(front.erase(first, last), {placement, by, bytes, times.makespan});
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
    const Emulation times = emulate(dag_, machine_, best_.placement, best_.order);
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
    ScoredPlacement scored{std::move(moved), OrderBy::fifo, {}};
    bool is_first = true;
    for (const OrderBy by : orders_without_search) {
      if (left_ == 0) break;
      --left_;
      const PlacementScore score = judge_(scored.placement.on, emulate(dag_, machine_, scored.placement, by));
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

}  // namespace

Emulation emulate(const OpDag& dag, const Machine& machine, const Placement& placement, OrderBy by) {
  switch (by) {
    case OrderBy::fifo:
      return emulate(dag, machine, placement.on, QueueOrder::fifo);
    case OrderBy::b_level:
      return emulate(dag, machine, placement.on, QueueOrder::b_level);
    case OrderBy::number:
      return by_number(dag, machine, placement.on);
    case OrderBy::own:
      break;
  }
  return emulate_in_order(dag, machine, placement);
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
  ScoredPlacement best{std::move(placement), OrderBy::fifo, {}};
  const bool has_own = !best.placement.order.empty();
  bool is_first = true;
  for (const OrderBy by : {OrderBy::own, OrderBy::fifo, OrderBy::b_level, OrderBy::number}) {
    if (by == OrderBy::own && !has_own) continue;
    const PlacementScore score = score_of(dag, machine, best.placement.on, emulate(dag, machine, best.placement, by));
    if (!is_first && !(score < best.score)) continue;
    best.score = score;
    best.order = by;
    is_first = false;
  }
  return best;
}

std::vector<FrontPlacement> placement_front(const OpDag& dag, const Machine& machine, const Units& units,
                                            std::size_t most) {
  std::vector<std::uint32_t> free;
  double count = 1;
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!units.is_free[u]) continue;
    free.push_back(u);
    count *= static_cast<double>(units.field.size());
  }
  std::vector<FrontPlacement> front;  // ascending by bytes, descending by time
  if (count > static_cast<double>(most)) return front;
  Assignment rest(units);
  for (const std::uint32_t u : free) rest.put(u, units.field.front());
  rest.put_rest();
  Placement placement = rest.placement();
  std::vector<std::size_t> digit(free.size(), 0);
  for (bool more = true; more;) {
    for (std::size_t f = 0; f < free.size(); ++f) {
      for (const std::uint32_t v : units.nodes[free[f]]) placement.on[v] = units.field[digit[f]];
    }
    for (const OrderBy by : orders_without_search) add_to(front, dag, machine, placement, by);
    more = false;
    for (std::size_t f = 0; f < free.size() && !more; ++f) {
      digit[f] = digit[f] + 1 == units.field.size() ? 0 : digit[f] + 1;
      more = digit[f] != 0;
    }
  }
  return front;
}

ScoredPlacement improved(const OpDag& dag, const Machine& machine, const Units& units, ScoredPlacement from,
                         const JudgePlacement& judge, std::size_t evaluations, std::uint64_t seed) {
  return LocalSearch(dag, machine, units, std::move(from), judge, evaluations, seed).run();
}

}  // namespace plimsoll
