#include <algorithm>
#include <set>

#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/lists/levels.h"

// Nodes along the dominant sequence, the path of the largest top and bottom level, join a cluster of those before them
// where they start earlier there.
// Source: Yang, Gerasoulis, "DSC: scheduling parallel tasks on an unbounded number of processors", IEEE TPDS 5(9),
// 1994. Of a node's other predecessors only such come along that are alone in their cluster and have no other reader.

namespace plimsoll {
namespace {

constexpr auto dsc_options = options_of<PlacingOptions>(place_on_option, homes_option, queue_option);

std::vector<PartitionOutcome> dsc_partition(const Problem& problem, const PlacingOptions& options,
                                            std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "dsc", budgets, false, place_dominant_sequence);
}

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

DominantSequenceClusters dominant_sequence_clusters(const OpDag& dag, const Machine& machine) {
  return DominantSequence(dag, machine).find();
}

PlacementOutcome place_dominant_sequence(const OpDag& dag, const Machine& machine) {
  const DominantSequenceClusters clusters = dominant_sequence_clusters(dag, machine);
  return merged_by_load(dag, machine, clusters.of, clusters.start);
}

extern constinit const StrategyInfo dsc_strategy{
    .name = "dsc",
    .family = Family::placement,
    .summary = "dominant sequence clustering; clusters to the least loaded devices",
    .source = "Yang, Gerasoulis, 'DSC: scheduling parallel tasks on an unbounded number of processors', IEEE TPDS 1994",
    .options = dsc_options,
    .kind = PartitionStrategy{.partition = by_options<dsc_partition>},
};

}  // namespace plimsoll
