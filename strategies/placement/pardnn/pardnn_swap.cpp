#include "strategies/placement/pardnn/pardnn_swap.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "strategies/placement/fenwick.h"
#include "strategies/placement/lists/levels.h"
#include "strategies/placement/pardnn/pardnn_exchange.h"

// Source: the refinement in the first version of the ParDNN authors' program, of 2020. Differs: each processor's load
// after a swap is what it had, less what leaves, with what joins; a path looks at the few partners whose spans end
// last before its own does, so that it takes O(K log V) for each path; transfers are mean ones.

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

}  // namespace

std::vector<std::uint32_t> with_swapped_paths(const OpDag& dag, const Machine& machine, const PardnnMapping& mapping,
                                              std::vector<std::uint32_t> on) {
  return PathSwapping(dag, machine, mapping, std::move(on)).run();
}

}  // namespace plimsoll
