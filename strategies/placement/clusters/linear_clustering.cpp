#include <algorithm>
#include <queue>

#include "strategies/placement/clusters/clusters.h"
#include "strategies/placement/lists/levels.h"

// Cut out the critical path of what is left, with transfers, until nothing is left; then put the paths on processors.
// Source: Kim, Browne, "A general approach to mapping of parallel computations upon multiprocessor architectures",
// ICPP 1988. Levels are always those of what is left; after a path only those are computed again that it was on.

namespace plimsoll {
namespace {

constexpr auto linear_clustering_options = options_of<PlacingOptions>(place_on_option, homes_option, queue_option);

std::vector<PartitionOutcome> linear_clustering_partition(const Problem& problem, const PlacingOptions& options,
                                                          std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, "linear_clustering", budgets, false, place_linear_clusters);
}

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

extern constinit const StrategyInfo linear_clustering_strategy{
    .name = "linear_clustering",
    .family = Family::placement,
    .summary = "critical paths, one after the other, each a cluster; clusters to the least loaded devices",
    .source =
        "Kim, Browne, 'A general approach to mapping of parallel computations upon multiprocessor "
        "architectures', ICPP 1988",
    .options = linear_clustering_options,
    .kind = PartitionStrategy{.partition = by_options<linear_clustering_partition>},
};

}  // namespace plimsoll
