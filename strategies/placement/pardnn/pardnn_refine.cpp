// Source: the refinement in the first version of the ParDNN authors' program, of 2020. Differs: each processor's load
// after a swap is what it had, less what leaves, with what joins; a path looks at the few partners whose spans end
// last before its own does, so that it takes O(K log V) for each path; transfers are mean ones.

#include "strategies/placement/pardnn/pardnn_refine.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "sim/core/containers/fenwick.h"
#include "strategies/placement/op_dag.h"
#include "strategies/placement/pardnn/pardnn_mapping.h"

namespace plimsoll {
namespace {

constexpr int most_partners = 8;

/// Levels of nodes where they are.
Levels levels_of_placed(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on) {
  std::vector<Nanoseconds> time(dag.size), transfer;
  transfer.reserve(dag.out.items.size());
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    time[v] = time_on(dag, machine, v, on[v]);
    for (const DagEdge& edge : dag.out[v]) {
      transfer.push_back(edge.sends ? machine.transfer(on[v], on[edge.node], edge.bytes) : 0);
    }
  }
  return levels(dag, time, transfer);
}

class PathSwapping {
 public:
  PathSwapping(const OpDag& dag, const Machine& machine, const PardnnMapping& mapping, std::vector<std::uint32_t> on)
      : dag_(dag),
        machine_(machine),
        units_(mapping.units),
        on_(std::move(on)),
        level_(levels_of_placed(dag, machine, on_)),
        places_(level_.top),
        exchanged_(dag, machine, on_),
        work_(machine.size()) {
    std::ranges::sort(places_);
    places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
    tree_.emplace_back(places_.size(), machine.size());
    for (std::uint32_t v = 0; v < dag.size; ++v) note(v, 1);
    std::vector<std::uint32_t> path(dag.size, no_node);
    std::uint32_t number = 0;
    for (const auto* paths : {&mapping.slices.primary, &mapping.slices.secondary}) {
      for (const std::vector<std::uint32_t>& nodes : *paths) {
        for (const std::uint32_t v : nodes) path[v] = number;
        if (may_move(nodes, path, number)) add(nodes);
        ++number;
      }
    }
  }

  std::vector<std::uint32_t> run() && {
    std::vector<std::uint32_t> sorted(paths_.size());
    for (std::uint32_t p = 0; p < sorted.size(); ++p) sorted[p] = p;
    std::ranges::stable_sort(sorted, std::greater<>(),
                             [&](std::uint32_t p) { return paths_[p].end - paths_[p].begin; });
    for (const std::uint32_t p : sorted) consider(p);
    return std::move(on_);
  }

 private:
  /// One that lies between nodes of another processor, and when it may run.
  struct Path {
    std::span<const std::uint32_t> nodes;
    Nanoseconds begin = 0, end = 0;
    bool has_moved = false;
  };

  /// What decides whether it goes from its own processor to the one that it lies in.
  struct Weighed {
    Nanoseconds own = 0, other = 0;             // exchanged with either
    Nanoseconds here = 0, there = 0;            // its time on either
    Nanoseconds work_here = 0, work_there = 0;  // in its span, with it
  };

  bool may_move(std::span<const std::uint32_t> nodes, std::span<const std::uint32_t> path, std::uint32_t number) const {
    return std::ranges::all_of(nodes, [&](std::uint32_t v) {
      const auto is_on_path = [&](std::uint32_t u) { return path[u] == number; };
      return units_.is_free[units_.of[v]] && on_[v] == on_[nodes.front()] &&
             std::ranges::all_of(units_.nodes[units_.of[v]], is_on_path);
    });
  }

  void add(std::span<const std::uint32_t> nodes) {
    const std::uint32_t other = lies_in(nodes);
    if (other == no_node) return;
    Path& path = paths_.emplace_back();
    path.nodes = nodes;
    path.end = cannot_run;
    for (const DagEdge& edge : dag_.in[nodes.front()]) {
      path.begin = std::max(path.begin, level_.top[edge.node] + time_on(dag_, machine_, edge.node, on_[edge.node]));
    }
    for (const DagEdge& edge : dag_.out[nodes.back()]) path.end = std::min(path.end, level_.top[edge.node]);
    partners_[{on_[nodes.front()], other}].insert({path.end, static_cast<std::uint32_t>(paths_.size() - 1)});
  }

  /// The one processor with all that it waits for and all that waits for it, if it is in the field and not its own.
  std::uint32_t lies_in(std::span<const std::uint32_t> nodes) const {
    std::uint32_t other = no_node;
    for (const auto& edges : {dag_.in[nodes.front()], dag_.out[nodes.back()]}) {
      for (const DagEdge& edge : edges) {
        const std::uint32_t q = on_[edge.node];
        if (q == on_[nodes.front()] || (other != no_node && q != other)) return no_node;
        other = q;
      }
    }
    return std::ranges::binary_search(units_.field, other) ? other : no_node;
  }

  std::size_t place(Nanoseconds level) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(places_, level) - places_.begin());
  }

  void note(std::uint32_t v, Nanoseconds sign) {
    tree_.front().add(place(level_.top[v]), on_[v], sign * time_on(dag_, machine_, v, on_[v]));
  }

  Weighed weighed(const Path& path, std::uint32_t here, std::uint32_t there) {
    Weighed made;
    const std::span<const Nanoseconds> with = exchanged_.by(path.nodes);
    made.own = with[here];
    made.other = with[there];
    for (const std::uint32_t v : path.nodes) {
      made.here += time_on(dag_, machine_, v, here);
      made.there += time_on(dag_, machine_, v, there);
    }
    const std::size_t end = std::max(place(path.end), place(level_.top[path.nodes.back()]) + 1);
    tree_.front().sum(place(path.begin), end, work_);
    made.work_here = work_[here];
    made.work_there = work_[there];
    return made;
  }

  void consider(std::uint32_t p) {
    const Path& path = paths_[p];
    const std::uint32_t here = on_[path.nodes.front()];
    const std::uint32_t there = path.has_moved ? no_node : lies_in(path.nodes);
    if (there == no_node) return;
    const Weighed mine = weighed(path, here, there);
    const std::uint32_t partner = best_partner(path, mine, here, there);
    if (partner != no_node) {
      move(partner, here);
      move(p, there);
      return;
    }
    const Nanoseconds after = std::max(mine.own + mine.there + mine.work_there, mine.work_here - mine.here);
    if (after < std::max(mine.other + mine.work_here, mine.work_there)) move(p, there);
  }

  /// Of those that lie the other way round and whose spans end no later: that with the largest gain, if there is one.
  std::uint32_t best_partner(const Path& path, const Weighed& mine, std::uint32_t here, std::uint32_t there) {
    const auto found = partners_.find({there, here});
    if (found == partners_.end()) return no_node;
    std::set<std::pair<Nanoseconds, std::uint32_t>>& waiting = found->second;
    std::uint32_t best = no_node;
    Nanoseconds most = 0;
    auto next = waiting.upper_bound({path.end, no_node});
    for (int looked = 0; looked < most_partners && next != waiting.begin(); ++looked) {
      --next;
      const Path& other = paths_[next->second];
      if (other.has_moved || lies_in(other.nodes) != here) {
        next = waiting.erase(next);
        continue;
      }
      const Weighed its = weighed(other, there, here);
      const Nanoseconds before = std::max(mine.other + mine.work_here, its.other + its.work_here);
      const Nanoseconds after =
          std::max(mine.own + its.work_here - its.here + mine.there, its.own + mine.work_here - mine.here + its.there);
      if (before - after <= most) continue;
      most = before - after;
      best = next->second;
    }
    return best;
  }

  void move(std::uint32_t p, std::uint32_t processor) {
    for (const std::uint32_t v : paths_[p].nodes) {
      note(v, -1);
      on_[v] = processor;
      note(v, 1);
    }
    paths_[p].has_moved = true;
  }

  const OpDag& dag_;
  const Machine& machine_;
  const Units& units_;
  std::vector<std::uint32_t> on_;
  const Levels level_;
  std::vector<Nanoseconds> places_;  // all top levels, ascending
  Exchanged exchanged_;
  std::vector<FenwickRows> tree_;  // one, by place and processor: work
  std::vector<Nanoseconds> work_;
  std::vector<Path> paths_;
  /// By its processor and the one that it lies in: paths by the ends of their spans.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::set<std::pair<Nanoseconds, std::uint32_t>>> partners_;
};

// Source: the refinement in the first version of the ParDNN authors' program, of 2020. Differs: groups come together
// before it, not after; every step is judged by an emulation; the critical path is that of the emulation, with what
// processors are busy with.

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

std::vector<std::uint32_t> with_swapped_paths(const OpDag& dag, const Machine& machine, const PardnnMapping& mapping,
                                              std::vector<std::uint32_t> on) {
  return PathSwapping(dag, machine, mapping, std::move(on)).run();
}

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
