#include "strategies/placement/pardnn/pardnn_refine.h"

#include <algorithm>

#include "strategies/placement/pardnn/pardnn_swap.h"

// Source: the refinement in the first version of the ParDNN authors' program, of 2020. Differs: groups come together
// before it, not after; every step is judged by an emulation; the critical path is that of the emulation, with what
// processors are busy with.

namespace plimsoll {
namespace {

bool may_switch(const Units& units, std::uint32_t v) {
  return units.is_free[units.of[v]] && units.nodes[units.of[v]].size() == 1;
}

/// The processor of all of them, if they are on one.
std::uint32_t common_processor(std::span<const DagEdge> edges, std::span<const std::uint32_t> on) {
  std::uint32_t common = no_node;
  for (const DagEdge& edge : edges) {
    if (common != no_node && on[edge.node] != common) return no_node;
    common = on[edge.node];
  }
  return common;
}

/// By what one waits for: the transfers from those on a processor.
Nanoseconds received_from(const OpDag& dag, const Machine& machine, std::uint32_t v, std::uint32_t processor,
                          std::span<const std::uint32_t> on) {
  Nanoseconds sum = 0;
  for (const DagEdge& edge : dag.in[v]) {
    if (edge.sends && on[edge.node] == processor) sum += machine.mean_transfer(edge.bytes);
  }
  return sum;
}

/// Where a node would go, or no_node.
std::uint32_t switched_to(const OpDag& dag, const Machine& machine, std::uint32_t v,
                          std::span<const std::uint32_t> on) {
  const std::uint32_t makers = common_processor(dag.in[v], on), readers = common_processor(dag.out[v], on);
  const bool has_mixed_makers = makers == no_node && !dag.in[v].empty();
  const bool has_mixed_readers = readers == no_node && !dag.out[v].empty();
  if (has_mixed_makers && readers != no_node && readers != on[v]) {
    Nanoseconds sent = 0;
    for (const DagEdge& edge : dag.out[v]) {
      if (edge.sends) sent = std::max(sent, machine.mean_transfer(edge.bytes));
    }
    const Nanoseconds saved = received_from(dag, machine, v, readers, on) + sent;
    const Nanoseconds lost = received_from(dag, machine, v, on[v], on) + time_on(dag, machine, v, on[v]);
    return saved > lost ? readers : no_node;
  }
  if (has_mixed_readers && makers != no_node && makers != on[v]) {
    return time_on(dag, machine, v, on[v]) <= machine.transfer(makers, on[v], 0) ? makers : no_node;
  }
  return no_node;
}

/// The node before each on its processor, or no_node.
std::vector<std::uint32_t> previous_nodes(const OpDag& dag, const Emulation& times) {
  std::vector<std::uint32_t> previous(dag.size, no_node);
  for (const std::vector<std::uint32_t>& order : times.order) {
    for (std::size_t i = 1; i < order.size(); ++i) previous[order[i]] = order[i - 1];
  }
  return previous;
}

class CriticalPath {
 public:
  CriticalPath(const OpDag& dag, const Machine& machine, const Units& units, std::span<const std::uint32_t> on,
               const Emulation& times)
      : dag_(dag), machine_(machine), units_(units), on_(on), times_(times), previous_(previous_nodes(dag, times)) {}

  struct Move {
    std::uint32_t unit = 0, to = 0;
    Nanoseconds gain = 0;
  };

  /// Those with a gain, the last in time first.
  std::vector<Move> moves() const {
    std::vector<Move> made;
    std::uint32_t v = static_cast<std::uint32_t>(std::ranges::max_element(times_.finish) - times_.finish.begin());
    while (v != no_node) {
      const std::uint32_t u = waited_for(v);
      if (u != no_node && on_[u] != on_[v] && may_join(u, on_[v])) {
        const Nanoseconds gain = times_.finish[v] - finish_if_joined(u, v);
        if (gain > 0) made.push_back({units_.of[u], on_[v], gain});
      }
      v = u;
    }
    return made;
  }

 private:
  bool may_join(std::uint32_t u, std::uint32_t p) const {
    return units_.is_free[units_.of[u]] && std::ranges::binary_search(units_.field, p);
  }

  Nanoseconds arrival(const DagEdge& from, std::uint32_t p) const {
    return times_.finish[from.node] + (from.sends ? machine_.transfer(on_[from.node], p, from.bytes) : 0);
  }

  /// What has let it start: what it reads, or else what was before it on its processor.
  std::uint32_t waited_for(std::uint32_t v) const {
    for (const DagEdge& edge : dag_.in[v]) {
      if (arrival(edge, on_[v]) == times_.start[v]) return edge.node;
    }
    const std::uint32_t u = previous_[v];
    return u != no_node && times_.finish[u] == times_.start[v] ? u : no_node;
  }

  /// When v would end if u were just before it on its processor.
  Nanoseconds finish_if_joined(std::uint32_t u, std::uint32_t v) const {
    const std::uint32_t p = on_[v];
    Nanoseconds start = previous_[v] == no_node ? 0 : times_.finish[previous_[v]];
    for (const DagEdge& edge : dag_.in[u]) start = std::max(start, arrival(edge, p));
    Nanoseconds ready = start + time_on(dag_, machine_, u, p);
    for (const DagEdge& edge : dag_.in[v]) {
      if (edge.node != u) ready = std::max(ready, arrival(edge, p));
    }
    return ready + time_on(dag_, machine_, v, p);
  }

  const OpDag& dag_;
  const Machine& machine_;
  const Units& units_;
  const std::span<const std::uint32_t> on_;
  const Emulation& times_;
  const std::vector<std::uint32_t> previous_;
};

}  // namespace

std::vector<std::uint32_t> with_switched_nodes(const OpDag& dag, const Machine& machine, const Units& units,
                                               std::vector<std::uint32_t> on) {
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    if (!may_switch(units, v)) continue;
    const std::uint32_t to = switched_to(dag, machine, v, on);
    if (std::ranges::binary_search(units.field, to)) on[v] = to;
  }
  return on;
}

std::vector<std::uint32_t> with_critical_moves(const OpDag& dag, const Machine& machine, const Units& units,
                                               std::vector<std::uint32_t> on, const Emulation& times,
                                               CriticalMoves which) {
  if (dag.size == 0) return on;
  std::vector<CriticalPath::Move> moves = CriticalPath(dag, machine, units, on, times).moves();
  if (moves.empty()) return on;
  if (which == CriticalMoves::best) moves = {*std::ranges::max_element(moves, {}, &CriticalPath::Move::gain)};
  std::vector<bool> has_moved(units.size(), false);
  for (const CriticalPath::Move& move : moves) {
    if (has_moved[move.unit]) continue;
    has_moved[move.unit] = true;
    for (const std::uint32_t v : units.nodes[move.unit]) on[v] = move.to;
  }
  return on;
}

std::vector<std::uint32_t> refined(const OpDag& dag, const Machine& machine, const PardnnMapping& mapping,
                                   QueueOrder order) {
  std::vector<std::uint32_t> on = mapping.on;
  Emulation times = emulate(dag, machine, on, order);
  const auto is_kept = [&](std::vector<std::uint32_t> changed) {
    if (changed == on) return false;
    Emulation again = emulate(dag, machine, changed, order);
    if (again.makespan >= times.makespan) return false;
    on = std::move(changed);
    times = std::move(again);
    return true;
  };
  is_kept(with_swapped_paths(dag, machine, mapping, on));
  is_kept(with_switched_nodes(dag, machine, mapping.units, on));
  const std::size_t rounds = is_thin(dag, machine) ? 1 : mapping.units.field.size() + 1;
  std::size_t in_vain = 0;  // rounds in a row; two would be repeated
  for (std::size_t round = 0; round < rounds && in_vain < 2; ++round) {
    const CriticalMoves which = round % 2 == 0 ? CriticalMoves::best : CriticalMoves::all_improving;
    in_vain = is_kept(with_critical_moves(dag, machine, mapping.units, on, times, which)) ? 0 : in_vain + 1;
  }
  return on;
}

}  // namespace plimsoll
