#include "strategies/placement/pardnn/pardnn_slices.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "strategies/placement/lists/levels.h"

// Source: Qararyah, Wahib, Dikbayir, Belviranli, Unat, "A computational-graph partitioning method for training
// memory-constrained DNNs" (ParDNN), Parallel Computing 2021, section 3.1. O(K (V + E)).

namespace plimsoll {
namespace {

class PathCutter {
 public:
  PathCutter(const OpDag& dag, std::span<const Nanoseconds> time, std::span<const Nanoseconds> transfer,
             const std::vector<bool>& may_cut)
      : dag_(dag), time_(time), transfer_(transfer), is_left_(may_cut), bottom_(dag.size, 0) {}

  Slices cut(std::size_t primaries) && {
    while (made_.primary.size() < primaries) {
      std::vector<std::uint32_t> path = heaviest_left();
      if (path.empty()) break;
      made_.primary.push_back(std::move(path));
    }
    cut_rest();
    return std::move(made_);
  }

 private:
  /// From the largest bottom level among what is left, to the successor of the largest one, until there is none left.
  std::vector<std::uint32_t> heaviest_left() {
    std::uint32_t first = no_node;
    for (std::uint32_t v = dag_.size; v-- > 0;) {
      if (!is_left_[v]) continue;
      Nanoseconds below = 0;
      for (std::size_t e = dag_.out.first[v]; e < dag_.out.first[v + 1]; ++e) {
        const std::uint32_t w = dag_.out.items[e].node;
        if (is_left_[w]) below = std::max(below, transfer_[e] + bottom_[w]);
      }
      bottom_[v] = time_[v] + below;
      if (first == no_node || bottom_[v] >= bottom_[first]) first = v;
    }
    std::vector<std::uint32_t> path;
    for (std::uint32_t v = first; v != no_node;) {
      path.push_back(v);
      is_left_[v] = false;
      std::uint32_t next = no_node;
      for (const DagEdge& edge : dag_.out[v]) {
        if (is_left_[edge.node] && (next == no_node || bottom_[edge.node] > bottom_[next])) next = edge.node;
      }
      v = next;
    }
    return path;
  }

  /// In the order of levels of all nodes. A path ends where the successor of the largest bottom level is taken.
  void cut_rest() {
    std::vector<std::uint32_t> primary(dag_.size, no_node);
    for (std::uint32_t p = 0; p < made_.primary.size(); ++p) {
      for (const std::uint32_t v : made_.primary[p]) primary[v] = p;
    }
    std::vector<Nanoseconds> sent(transfer_.begin(), transfer_.end());
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      for (std::size_t e = dag_.out.first[v]; e < dag_.out.first[v + 1]; ++e) {
        if (primary[v] != no_node && primary[v] == primary[dag_.out.items[e].node]) sent[e] = 0;
      }
    }
    const Levels level = levels(dag_, time_, sent);
    std::vector<std::uint32_t> sorted;
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      if (is_left_[v]) sorted.push_back(v);
    }
    std::ranges::stable_sort(sorted, [&](std::uint32_t a, std::uint32_t b) {
      return std::tuple(level.top[a] + level.bottom[a], level.bottom[a]) >
             std::tuple(level.top[b] + level.bottom[b], level.bottom[b]);
    });
    for (const std::uint32_t head : sorted) {
      if (!is_left_[head]) continue;
      std::vector<std::uint32_t>& path = made_.secondary.emplace_back();
      for (std::uint32_t v = head; v != no_node && is_left_[v];) {
        path.push_back(v);
        is_left_[v] = false;
        std::uint32_t next = no_node;
        for (const DagEdge& edge : dag_.out[v]) {
          if (next == no_node || level.bottom[edge.node] > level.bottom[next]) next = edge.node;
        }
        v = next;
      }
    }
  }

  const OpDag& dag_;
  const std::span<const Nanoseconds> time_, transfer_;
  std::vector<bool> is_left_;
  std::vector<Nanoseconds> bottom_;  // within what is left
  Slices made_;
};

}  // namespace

Slices pardnn_slices(const OpDag& dag, std::span<const Nanoseconds> time, std::span<const Nanoseconds> transfer,
                     std::size_t primaries, const std::vector<bool>& may_cut) {
  return PathCutter(dag, time, transfer, may_cut).cut(primaries);
}

bool is_thin(const OpDag& dag, const Machine& machine) {
  if (dag.size == 0) return true;
  const std::vector<Nanoseconds> times = mean_times(dag, machine);
  const Nanoseconds work = std::accumulate(times.begin(), times.end(), Nanoseconds{0});
  return work < 2 * std::ranges::max(mean_levels(dag, machine).bottom);
}

}  // namespace plimsoll
