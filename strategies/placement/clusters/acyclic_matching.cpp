#include "strategies/placement/clusters/acyclic_matching.h"

#include <algorithm>
#include <numeric>

namespace plimsoll {
namespace {

/// Heights that rise along every net, by at least 1.
std::vector<std::int64_t> heights(const NetDag& dag, LevelsFrom from) {
  std::vector<std::int64_t> height(dag.size(), 0);
  if (from == LevelsFrom::start) {
    for (std::uint32_t v = 0; v < dag.size(); ++v) {
      for (const std::uint32_t n : dag.reads[v]) height[v] = std::max(height[v], height[dag.maker[n]] + 1);
    }
    return height;
  }
  for (std::uint32_t v = dag.size(); v-- > 0;) {
    for (const std::uint32_t n : dag.makes[v]) {
      for (const std::uint32_t r : dag.readers[n]) height[v] = std::min(height[v], height[r] - 1);
    }
  }
  return height;
}

/// Only vertices one height apart become a pair. A circle of pairs would go up by a net and down within a pair, so all
/// its pairs would be at the same two heights, each with a net from its lower vertex to the next one's upper vertex. So
/// a pair is refused whose lower vertex has a net to a pair there and whose upper vertex has one from a pair there.
class Matching {
 public:
  Matching(const NetDag& dag, LevelsFrom from, std::int64_t most)
      : dag_(dag),
        most_(most),
        height_(heights(dag, from)),
        pair_(dag.size()),
        is_matched_(dag.size(), false),
        leads_to_pair_(dag.size(), false),
        comes_from_pair_(dag.size(), false),
        shared_(dag.size(), 0) {
    std::iota(pair_.begin(), pair_.end(), 0u);
  }

  void match(std::uint32_t v) {
    if (is_matched_[v]) return;
    asked_ = v;
    near_.clear();
    for (const std::uint32_t n : dag_.makes[v]) {
      if (dag_.readers[n].size() > widest) continue;
      for (const std::uint32_t r : dag_.readers[n]) note(v, r, n);
    }
    for (const std::uint32_t n : dag_.reads[v]) {
      if (dag_.readers[n].size() <= widest) note(dag_.maker[n], v, n);
    }
    std::uint32_t best = no_node;
    for (const std::uint32_t w : near_) {
      if (best == no_node || shared_[w] > shared_[best] || (shared_[w] == shared_[best] && w < best)) best = w;
    }
    for (const std::uint32_t w : near_) shared_[w] = 0;
    if (best != no_node) join(std::min(v, best), std::max(v, best));
  }

  std::vector<std::uint32_t> pairs() && { return std::move(pair_); }

 private:
  static constexpr std::size_t widest = 64;  // wider nets say little about who belongs together

  /// One of the two is asked about, and may become a pair with the other.
  void note(std::uint32_t lower, std::uint32_t upper, std::uint32_t net) {
    if (is_matched_[lower] || is_matched_[upper] || height_[upper] != height_[lower] + 1) return;
    if (leads_to_pair_[lower] && comes_from_pair_[upper]) return;
    if (dag_.weight[lower] + dag_.weight[upper] > most_) return;
    const std::uint32_t other = asked_ == lower ? upper : lower;
    if (shared_[other] == 0) near_.push_back(other);
    shared_[other] += (1 + static_cast<double>(dag_.bytes[net])) / static_cast<double>(dag_.readers[net].size());
  }

  void join(std::uint32_t lower, std::uint32_t upper) {
    pair_[upper] = lower;
    is_matched_[lower] = is_matched_[upper] = true;
    for (const std::uint32_t n : dag_.reads[upper]) {
      const std::uint32_t u = dag_.maker[n];
      if (height_[u] == height_[lower]) leads_to_pair_[u] = true;
    }
    for (const std::uint32_t n : dag_.makes[lower]) {
      for (const std::uint32_t r : dag_.readers[n]) {
        if (height_[r] == height_[upper]) comes_from_pair_[r] = true;
      }
    }
  }

  const NetDag& dag_;
  std::int64_t most_;
  std::vector<std::int64_t> height_;
  std::vector<std::uint32_t> pair_;
  std::vector<bool> is_matched_, leads_to_pair_, comes_from_pair_;
  std::vector<double> shared_;       // with the vertex that is asked about
  std::vector<std::uint32_t> near_;  // those that share
  std::uint32_t asked_ = no_node;
};

}  // namespace

std::vector<std::uint32_t> acyclic_matching(const NetDag& dag, LevelsFrom from, std::int64_t most,
                                            std::mt19937_64& random) {
  std::vector<std::uint32_t> order(dag.size());
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  Matching matching(dag, from, most);
  for (const std::uint32_t v : order) matching.match(v);
  return std::move(matching).pairs();
}

}  // namespace plimsoll
