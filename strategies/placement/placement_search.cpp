#include "strategies/placement/placement_search.h"

#include <algorithm>
#include <random>

#include "sim/core/expects.h"

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

}  // namespace plimsoll
