// Ops that should not wait for transfers form clusters: `linear_clustering` and `dsc`.

#include "strategies/placement/clusters/clusters.h"

#include <algorithm>
#include <queue>
#include <set>

#include "strategies/placement/op_dag.h"

namespace plimsoll {
namespace {

/// Bottom levels of the nodes that are left, and on which edge each is reached.
class LevelsOfRest {
 public:
  LevelsOfRest(const OpDag& dag, const Machine& machine)
      : dag_(dag),
        time_(mean_times(dag, machine)),
        transfer_(mean_transfers(dag, machine)),
        bottom_(dag.size),
        next_(dag.size, no_node),
        is_left_(dag.size, true),
        is_waiting_(dag.size, false) {
    for (std::uint32_t v = dag.size; v-- > 0;) find(v);
    for (std::uint32_t v = 0; v < dag.size; ++v) largest_.push({bottom_[v], v});
  }

  /// The critical path of what is left, which then is not left any more; empty at the end.
  std::vector<std::uint32_t> cut() {
    std::vector<std::uint32_t> path;
    while (!largest_.empty()) {
      const Top top = largest_.top();
      largest_.pop();
      if (!is_left_[top.node] || bottom_[top.node] != top.level) continue;
      for (std::uint32_t v = top.node; v != no_node; v = next_[v]) path.push_back(v);
      break;
    }
    for (const std::uint32_t v : path) is_left_[v] = false;
    for (const std::uint32_t v : path) note_change(v);
    while (!changed_.empty()) {
      const std::uint32_t v = changed_.top();
      changed_.pop();
      is_waiting_[v] = false;
      const Nanoseconds before = bottom_[v];
      find(v);
      if (bottom_[v] == before) continue;
      largest_.push({bottom_[v], v});
      note_change(v);
    }
    return path;
  }

 private:
  struct Top {
    Nanoseconds level = 0;
    std::uint32_t node = 0;
    friend bool operator<(const Top& a, const Top& b) {
      return a.level != b.level ? a.level < b.level : a.node > b.node;
    }
  };

  /// Whose longest path goes over this node. Levels only fall: no other node's changes.
  void note_change(std::uint32_t v) {
    for (const DagEdge& edge : dag_.in[v]) {
      const std::uint32_t u = edge.node;
      if (!is_left_[u] || next_[u] != v || is_waiting_[u]) continue;
      is_waiting_[u] = true;
      changed_.push(u);
    }
  }

  void find(std::uint32_t v) {
    Nanoseconds below = 0;
    next_[v] = no_node;
    for (std::size_t e = dag_.out.first[v]; e < dag_.out.first[v + 1]; ++e) {
      const std::uint32_t w = dag_.out.items[e].node;
      if (!is_left_[w] || (next_[v] != no_node && transfer_[e] + bottom_[w] <= below)) continue;
      below = transfer_[e] + bottom_[w];
      next_[v] = w;
    }
    bottom_[v] = time_[v] + below;
  }

  const OpDag& dag_;
  std::vector<Nanoseconds> time_, transfer_, bottom_;
  std::vector<std::uint32_t> next_;
  std::vector<bool> is_left_, is_waiting_;
  std::priority_queue<Top> largest_;            // and what these were before
  std::priority_queue<std::uint32_t> changed_;  // successors first
};

class DominantSequence {
 public:
  DominantSequence(const OpDag& dag, const Machine& machine)
      : dag_(dag),
        time_(mean_times(dag, machine)),
        bottom_(levels(dag, time_, mean_transfers(dag, machine)).bottom),
        transfer_(dag.in.items.size()),
        waits_(dag.size),
        end_(dag.size, 0),
        members_(dag.size, 0) {
    for (std::size_t e = 0; e < dag.in.items.size(); ++e) {
      const DagEdge& edge = dag.in.items[e];
      transfer_[e] = edge.sends ? machine.mean_transfer(edge.bytes) : 0;
    }
    made_.of.assign(dag.size, no_node);
    made_.start.assign(dag.size, 0);
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      waits_[v] = dag.in[v].size();
      if (waits_[v] == 0) free_.insert(rank(v));
    }
  }

  DominantSequenceClusters find() && {
    while (!free_.empty()) {
      const Rank first = *free_.begin();
      const std::uint32_t v = first.second;
      free_.erase(free_.begin());
      // What is partly free and more urgent keeps the cluster that it can start earlier in.
      const std::uint32_t kept =
          partly_free_.empty() || *partly_free_.begin() > first ? no_node : cluster_for(partly_free_.begin()->second);
      take(v, kept);
      note_end(v);
    }
    return std::move(made_);
  }

 private:
  using Rank = std::pair<Nanoseconds, std::uint32_t>;  // the negative sum of levels, and the node

  Rank rank(std::uint32_t v) const { return {-(made_.start[v] + bottom_[v]), v}; }
  Nanoseconds finish(std::uint32_t v) const { return made_.start[v] + time_[v]; }
  bool is_taken(std::uint32_t v) const { return made_.of[v] != no_node; }

  /// What comes from a predecessor that is taken, and when.
  struct Arrival {
    Nanoseconds at = 0;
    std::uint32_t from = 0;
  };

  /// The latest first; of equals the smallest number.
  std::vector<Arrival> arrivals(std::uint32_t v) const {
    std::vector<Arrival> made;
    for (std::size_t e = dag_.in.first[v]; e < dag_.in.first[v + 1]; ++e) {
      const std::uint32_t u = dag_.in.items[e].node;
      if (is_taken(u)) made.push_back({finish(u) + transfer_[e], u});
    }
    std::ranges::stable_sort(made, std::ranges::greater{}, &Arrival::at);
    return made;
  }

  /// The start behind all of the cluster, when what others send is there; `others` are all arrivals but the first.
  Nanoseconds start_in(std::uint32_t cluster, std::span<const Arrival> others, Nanoseconds end) const {
    for (const Arrival& arrival : others) {
      if (made_.of[arrival.from] != cluster) return std::max(end, arrival.at);
    }
    return end;
  }

  /// The cluster of what arrives last, if the node can start earlier there; else no_node.
  std::uint32_t cluster_for(std::uint32_t v) const {
    const std::vector<Arrival> all = arrivals(v);
    const std::uint32_t cluster = made_.of[all.front().from];
    const bool is_earlier = start_in(cluster, all, end_[cluster]) < made_.start[v];
    return is_earlier ? cluster : no_node;
  }

  void take(std::uint32_t v, std::uint32_t kept) {
    const std::vector<Arrival> all = arrivals(v);
    const std::uint32_t cluster = all.empty() ? no_node : made_.of[all.front().from];
    if (cluster == no_node || cluster == kept) return join(v, v, made_.start[v]);
    Nanoseconds end = end_[cluster], best = start_in(cluster, all, end);
    std::size_t along = 0;                                     // predecessors that come along at the best
    std::vector<std::pair<std::uint32_t, Nanoseconds>> moved;  // and their starts there
    for (std::size_t i = 1; i < all.size(); ++i) {
      const std::uint32_t u = all[i].from;
      if (made_.of[u] == cluster) continue;
      if (members_[made_.of[u]] != 1 || dag_.out[u].size() != 1 || made_.of[u] == kept) break;
      moved.emplace_back(u, std::max(end, made_.start[u]));
      end = moved.back().second + time_[u];
      const Nanoseconds start = start_in(cluster, std::span(all).subspan(i + 1), end);
      if (start >= best) continue;
      best = start;
      along = moved.size();
    }
    if (best >= made_.start[v]) return join(v, v, made_.start[v]);
    for (std::size_t i = 0; i < along; ++i) {
      members_[made_.of[moved[i].first]] = 0;
      join(moved[i].first, cluster, moved[i].second);
    }
    join(v, cluster, best);
  }

  void join(std::uint32_t v, std::uint32_t cluster, Nanoseconds start) {
    made_.of[v] = cluster;
    made_.start[v] = start;
    end_[cluster] = finish(v);
    ++members_[cluster];
  }

  void note_end(std::uint32_t v) {
    for (const DagEdge& edge : dag_.out[v]) {
      const std::uint32_t w = edge.node;
      partly_free_.erase(rank(w));
      const auto row = dag_.in[w];
      const auto at = std::ranges::lower_bound(row, v, {}, &DagEdge::node) - row.begin();
      const Nanoseconds sent = transfer_[dag_.in.first[w] + static_cast<std::size_t>(at)];
      made_.start[w] = std::max(made_.start[w], finish(v) + sent);
      (--waits_[w] == 0 ? free_ : partly_free_).insert(rank(w));
    }
  }

  const OpDag& dag_;
  std::vector<Nanoseconds> time_, bottom_, transfer_;  // transfer_: by edge in the order of OpDag::in
  std::vector<std::size_t> waits_;
  std::vector<Nanoseconds> end_;        // by cluster
  std::vector<std::uint32_t> members_;  // by cluster: how many
  DominantSequenceClusters made_;       // start: of what is not taken, when all that is known arrives
  std::set<Rank> free_, partly_free_;
};

}  // namespace

std::vector<std::uint32_t> linear_clusters(const OpDag& dag, const Machine& machine) {
  std::vector<std::uint32_t> cluster(dag.size, no_node);
  LevelsOfRest rest(dag, machine);
  std::uint32_t number = 0;
  for (std::vector<std::uint32_t> path = rest.cut(); !path.empty(); path = rest.cut()) {
    for (const std::uint32_t v : path) cluster[v] = number;
    ++number;
  }
  return cluster;
}

PlacementOutcome place_linear_clusters(const OpDag& dag, const Machine& machine) {
  const std::vector<std::uint32_t> cluster = linear_clusters(dag, machine);
  std::vector<Nanoseconds> transfer = mean_transfers(dag, machine);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    for (std::size_t e = dag.out.first[v]; e < dag.out.first[v + 1]; ++e) {
      if (cluster[v] == cluster[dag.out.items[e].node]) transfer[e] = 0;
    }
  }
  return merged_by_load(dag, machine, cluster, levels(dag, mean_times(dag, machine), transfer).top);
}

// Cut out the critical path of what is left, with transfers, until nothing is left; then put the paths on processors.
// Source: Kim, Browne, "A general approach to mapping of parallel computations upon multiprocessor architectures",
// ICPP 1988. Levels are always those of what is left; after a path only those are computed again that it was on.
extern constinit const StrategyInfo linear_clustering_strategy{
    .name = "linear_clustering",
    .family = Family::placement,
    .summary = "critical paths, one after the other, each a cluster; clusters to the least loaded devices",
    .source =
        "Kim, Browne, 'A general approach to mapping of parallel computations upon multiprocessor "
        "architectures', ICPP 1988",
    .options = placing_options,
    .kind = placed_by<linear_clustering_strategy, place_linear_clusters>,
};

DominantSequenceClusters dominant_sequence_clusters(const OpDag& dag, const Machine& machine) {
  return DominantSequence(dag, machine).find();
}

PlacementOutcome place_dominant_sequence(const OpDag& dag, const Machine& machine) {
  const DominantSequenceClusters clusters = dominant_sequence_clusters(dag, machine);
  return merged_by_load(dag, machine, clusters.of, clusters.start);
}

// Nodes along the dominant sequence, the path of the largest top and bottom level, join a cluster of those before them
// where they start earlier there.
// Source: Yang, Gerasoulis, "DSC: scheduling parallel tasks on an unbounded number of processors", IEEE TPDS 5(9),
// 1994. Of a node's other predecessors only such come along that are alone in their cluster and have no other reader.
extern constinit const StrategyInfo dsc_strategy{
    .name = "dsc",
    .family = Family::placement,
    .summary = "dominant sequence clustering; clusters to the least loaded devices",
    .source = "Yang, Gerasoulis, 'DSC: scheduling parallel tasks on an unbounded number of processors', IEEE TPDS 1994",
    .options = placing_options,
    .kind = placed_by<dsc_strategy, place_dominant_sequence>,
};

}  // namespace plimsoll
