#include "strategies/placement/clusters/acyclic_parts.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <queue>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

/// By vertex: the first of its strongly connected component, found by Tarjan's depth-first search.
class StrongComponents {
 public:
  explicit StrongComponents(const NetDag& dag)
      : dag_(dag), index_(dag.size(), no_node), low_(dag.size()), of_(dag.size(), no_node) {}

  std::vector<std::uint32_t> find() && {
    for (std::uint32_t v = 0; v < dag_.size(); ++v) {
      if (index_[v] == no_node) search(v);
    }
    return std::move(of_);
  }

 private:
  struct Visit {
    std::uint32_t vertex = 0;
    std::size_t net = 0, reader = 0;  // what comes next
  };

  void enter(std::uint32_t v) {
    index_[v] = low_[v] = entered_++;
    open_.push_back(v);
    visits_.push_back({v});
  }

  void search(std::uint32_t root) {
    enter(root);
    while (!visits_.empty()) {
      Visit& visit = visits_.back();
      const std::uint32_t v = visit.vertex;
      const auto nets = dag_.makes[v];
      if (visit.net < nets.size()) {
        const auto readers = dag_.readers[nets[visit.net]];
        if (visit.reader == readers.size()) {
          ++visit.net;
          visit.reader = 0;
          continue;
        }
        const std::uint32_t w = readers[visit.reader++];
        if (index_[w] == no_node) {
          enter(w);
        } else if (of_[w] == no_node) {
          low_[v] = std::min(low_[v], index_[w]);
        }
        continue;
      }
      visits_.pop_back();
      if (!visits_.empty()) low_[visits_.back().vertex] = std::min(low_[visits_.back().vertex], low_[v]);
      if (low_[v] == index_[v]) close(v);
    }
  }

  void close(std::uint32_t v) {
    std::uint32_t last = no_node;
    do {
      last = open_.back();
      open_.pop_back();
      of_[last] = v;
    } while (last != v);
  }

  const NetDag& dag_;
  std::vector<std::uint32_t> index_, low_, of_, open_;
  std::vector<Visit> visits_;
  std::uint32_t entered_ = 0;
};

/// Nets between clusters that are numbered somehow; several of one maker with the same readers become one.
class ClusterNets {
 public:
  ClusterNets(const NetDag& dag, std::span<const std::uint32_t> of, std::uint32_t clusters) : made_() {
    made_.weight.assign(clusters, 0);
    for (std::uint32_t v = 0; v < dag.size(); ++v) made_.weight[of[v]] += dag.weight[v];
    std::vector<std::vector<std::uint32_t>> nets(clusters);  // by cluster that makes them
    for (std::uint32_t n = 0; n < dag.nets(); ++n) nets[of[dag.maker[n]]].push_back(n);
    for (std::uint32_t c = 0; c < clusters; ++c) {
      std::vector<Pending> own;
      for (const std::uint32_t n : nets[c]) {
        Pending net{dag.bytes[n], {}};
        for (const std::uint32_t r : dag.readers[n]) {
          if (of[r] != c) net.readers.push_back(of[r]);
        }
        if (net.readers.empty()) continue;
        std::ranges::sort(net.readers);
        net.readers.erase(std::unique(net.readers.begin(), net.readers.end()), net.readers.end());
        own.push_back(std::move(net));
      }
      std::ranges::stable_sort(own, {}, &Pending::readers);
      for (std::size_t i = 0; i < own.size(); ++i) {
        if (i > 0 && own[i].readers == own[i - 1].readers) {
          made_.bytes.back() += own[i].bytes;
          continue;
        }
        made_.maker.push_back(c);
        made_.bytes.push_back(own[i].bytes);
        made_.readers.items.insert(made_.readers.items.end(), own[i].readers.begin(), own[i].readers.end());
        made_.readers.end_row();
      }
    }
    list_nets(made_);
  }

  NetDag made() && { return std::move(made_); }

 private:
  struct Pending {
    std::int64_t bytes = 0;
    std::vector<std::uint32_t> readers;
  };
  NetDag made_;
};

/// By vertex: its place in an order that all nets keep; of those that may come next the smallest number.
std::vector<std::uint32_t> places(const NetDag& dag) {
  std::vector<std::size_t> waits(dag.size());
  std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> ready;
  for (std::uint32_t v = 0; v < dag.size(); ++v) {
    waits[v] = dag.reads[v].size();
    if (waits[v] == 0) ready.push(v);
  }
  std::vector<std::uint32_t> place(dag.size(), no_node);
  std::uint32_t next = 0;
  while (!ready.empty()) {
    const std::uint32_t v = ready.top();
    ready.pop();
    place[v] = next++;
    for (const std::uint32_t n : dag.makes[v]) {
      for (const std::uint32_t r : dag.readers[n]) {
        if (--waits[r] == 0) ready.push(r);
      }
    }
  }
  EXPECTS(next == dag.size());
  return place;
}

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

/// What comes next to the part that grows, of all that may.
enum class Growth : std::uint8_t {
  in_order,     ///< the smallest number
  depth_first,  ///< what became ready last
  closest,      ///< what reads the most bytes of the part; of equals the smallest number
};

class GrowingParts {
 public:
  GrowingParts(const NetDag& dag, std::span<const PartLimit> limits, Growth growth)
      : dag_(dag),
        limits_(limits),
        growth_(growth),
        part_(dag.size(), no_node),
        waits_(dag.size()),
        key_(dag.size(), 0) {}

  std::vector<std::uint32_t> grow() && {
    double all = 0, filled = 0, bound = 0;
    for (const std::int64_t weight : dag_.weight) all += static_cast<double>(weight);
    for (std::uint32_t v = 0; v < dag_.size(); ++v) {
      waits_[v] = dag_.reads[v].size();
      if (waits_[v] == 0) ready_.push({0, v});
    }
    bound = limits_[0].share * all;
    while (const std::optional<std::uint32_t> v = next()) {
      const auto weight = static_cast<double>(dag_.weight[*v]);
      while (growing_ + 1 < limits_.size() && filled + weight / 2 > bound) {
        bound += limits_[++growing_].share * all;
        if (growth_ == Growth::closest) forget();
      }
      filled += weight;
      part_[*v] = growing_;
      for (const std::uint32_t n : dag_.makes[*v]) {
        for (const std::uint32_t r : dag_.readers[n]) note_read(r, dag_.bytes[n]);
      }
    }
    return std::move(part_);
  }

 private:
  struct Candidate {
    std::int64_t key = 0;
    std::uint32_t vertex = 0;
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.key != b.key ? a.key < b.key : a.vertex > b.vertex;
    }
  };

  std::optional<std::uint32_t> next() {
    while (!ready_.empty()) {
      const Candidate first = ready_.top();
      ready_.pop();
      if (part_[first.vertex] == no_node && key_[first.vertex] == first.key) return first.vertex;
    }
    return std::nullopt;
  }

  void note_read(std::uint32_t v, std::int64_t bytes) {
    --waits_[v];
    if (growth_ == Growth::closest) key_[v] += bytes;
    if (waits_[v] != 0) return;
    if (growth_ == Growth::depth_first) key_[v] = ++became_ready_;
    ready_.push({key_[v], v});
  }

  /// The next part has nothing yet that others are close to.
  void forget() {
    ready_ = {};
    std::ranges::fill(key_, 0);
    for (std::uint32_t v = 0; v < dag_.size(); ++v) {
      if (part_[v] == no_node && waits_[v] == 0) ready_.push({0, v});
    }
  }

  const NetDag& dag_;
  std::span<const PartLimit> limits_;
  Growth growth_;
  std::vector<std::uint32_t> part_;
  std::vector<std::size_t> waits_;
  std::vector<std::int64_t> key_;
  std::priority_queue<Candidate> ready_;
  std::uint32_t growing_ = 0;
  std::int64_t became_ready_ = 0;
};

/// How many readers of each net each part has.
class ReadersInParts {
 public:
  ReadersInParts(const NetDag& dag, std::size_t parts, std::span<const std::uint32_t> part) {
    for (std::uint32_t n = 0; n < dag.nets(); ++n) {
      first_.push_back(counts_.size());
      counts_.resize(counts_.size() + std::min(parts, dag.readers[n].size()));
    }
    first_.push_back(counts_.size());
    for (std::uint32_t n = 0; n < dag.nets(); ++n) {
      for (const std::uint32_t r : dag.readers[n]) add(n, part[r]);
    }
  }

  struct Count {
    std::uint32_t part = 0, readers = 0;  // none: free for any part
  };
  std::span<const Count> operator[](std::uint32_t net) const {
    return std::span(counts_).subspan(first_[net], first_[net + 1] - first_[net]);
  }
  std::uint32_t in(std::uint32_t net, std::uint32_t part) const {
    for (const Count& each : (*this)[net]) {
      if (each.part == part && each.readers > 0) return each.readers;
    }
    return 0;
  }
  void move(std::uint32_t net, std::uint32_t from, std::uint32_t to) {
    for (std::size_t i = first_[net];; ++i) {
      if (counts_[i].part != from || counts_[i].readers == 0) continue;
      --counts_[i].readers;
      break;
    }
    add(net, to);
  }

 private:
  void add(std::uint32_t net, std::uint32_t part) {
    Count* place = nullptr;
    for (std::size_t i = first_[net]; i < first_[net + 1]; ++i) {
      Count& each = counts_[i];
      if (each.readers > 0 && each.part == part) {
        ++each.readers;
        return;
      }
      if (each.readers == 0 && place == nullptr) place = &each;
    }
    *place = {part, 1};
  }

  std::vector<std::size_t> first_;  // by net
  std::vector<Count> counts_;
};

class PartImprovement {
 public:
  PartImprovement(const NetDag& dag, std::span<const PartLimit> limits, std::vector<std::uint32_t>& part)
      : dag_(dag), limits_(limits), part_(part), readers_(dag, limits.size(), part), load_(limits.size(), 0) {
    for (std::uint32_t v = 0; v < dag.size(); ++v) load_[part[v]] += static_cast<double>(dag.weight[v]);
  }

  /// All vertices once, in either direction; whether one has moved.
  bool pass(bool is_forward) {
    bool has_moved = false;
    for (std::uint32_t i = 0; i < dag_.size(); ++i) has_moved |= try_to_move(is_forward ? i : dag_.size() - 1 - i);
    return has_moved;
  }

 private:
  struct Range {
    std::uint32_t first = 0, last = 0;
  };

  Range allowed(std::uint32_t v) const {
    Range range{0, static_cast<std::uint32_t>(limits_.size() - 1)};
    for (const std::uint32_t n : dag_.reads[v]) range.first = std::max(range.first, part_[dag_.maker[n]]);
    for (const std::uint32_t n : dag_.makes[v]) {
      for (const auto& [part, count] : readers_[n]) {
        if (count > 0) range.last = std::min(range.last, part);
      }
    }
    return range;
  }

  /// Bytes that are cut less with the vertex there.
  std::int64_t gain(std::uint32_t v, std::uint32_t to) const {
    const std::uint32_t from = part_[v];
    std::int64_t sum = 0;
    for (const std::uint32_t n : dag_.reads[v]) {
      const std::uint32_t maker = part_[dag_.maker[n]];
      if (from != maker && readers_.in(n, from) == 1) sum += dag_.bytes[n];
      if (to != maker && readers_.in(n, to) == 0) sum -= dag_.bytes[n];
    }
    for (const std::uint32_t n : dag_.makes[v]) {
      if (readers_.in(n, to) > 0) sum += dag_.bytes[n];
      if (readers_.in(n, from) > 0) sum -= dag_.bytes[n];
    }
    return sum;
  }

  /// Whether the move makes the fuller of the two parts less full.
  bool evens_out(std::uint32_t from, std::uint32_t to, double weight) const {
    return (load_[to] + weight) / limits_[to].share < load_[from] / limits_[from].share;
  }

  bool try_to_move(std::uint32_t v) {
    const Range range = allowed(v);
    if (range.first == range.last) return false;
    const std::uint32_t from = part_[v];
    const auto weight = static_cast<double>(dag_.weight[v]);
    const bool is_too_full = load_[from] > limits_[from].most;
    std::optional<std::uint32_t> best;
    std::int64_t most = 0;
    // The neighbours, and where the nearest of its readers and of what it reads are.
    for (const std::uint32_t to : {range.first, from == 0 ? 0 : from - 1, from + 1, range.last}) {
      if (to == from || to < range.first || to > range.last) continue;
      const bool evens = evens_out(from, to, weight);
      if (is_too_full ? !evens : load_[to] + weight > limits_[to].most) continue;
      const std::int64_t gained = gain(v, to);
      if (!is_too_full && (gained < 0 || (gained == 0 && !evens))) continue;
      if (best && gained <= most) continue;
      best = to;
      most = gained;
    }
    if (!best) return false;
    for (const std::uint32_t n : dag_.reads[v]) readers_.move(n, from, *best);
    load_[from] -= weight;
    load_[*best] += weight;
    part_[v] = *best;
    return true;
  }

  const NetDag& dag_;
  std::span<const PartLimit> limits_;
  std::vector<std::uint32_t>& part_;
  ReadersInParts readers_;
  std::vector<double> load_;
};

double overload(const NetDag& dag, std::span<const PartLimit> limits, std::span<const std::uint32_t> part) {
  std::vector<double> load(limits.size(), 0);
  for (std::uint32_t v = 0; v < dag.size(); ++v) load[part[v]] += static_cast<double>(dag.weight[v]);
  double sum = 0;
  for (std::size_t p = 0; p < limits.size(); ++p) sum += std::max(0.0, load[p] - limits[p].most);
  return sum;
}

}  // namespace

void list_nets(NetDag& dag) {
  const auto rows = [&](auto each) {
    Rows<std::uint32_t> made;
    made.first.assign(dag.size() + 1, 0);
    each([&](std::uint32_t v, std::uint32_t) { ++made.first[v + 1]; });
    std::partial_sum(made.first.begin(), made.first.end(), made.first.begin());
    made.items.resize(made.first.back());
    std::vector<std::uint32_t> at = made.first;
    each([&](std::uint32_t v, std::uint32_t n) { made.items[at[v]++] = n; });
    return made;
  };
  dag.makes = rows([&](auto note) {
    for (std::uint32_t n = 0; n < dag.nets(); ++n) note(dag.maker[n], n);
  });
  dag.reads = rows([&](auto note) {
    for (std::uint32_t n = 0; n < dag.nets(); ++n) {
      for (const std::uint32_t r : dag.readers[n]) note(r, n);
    }
  });
}

NetContraction without_circles(const NetDag& any) {
  return contracted(any, StrongComponents(any).find());
}

NetContraction contracted(const NetDag& dag, std::span<const std::uint32_t> cluster) {
  NetContraction made;
  std::vector<std::uint32_t> number(dag.size(), no_node);  // by name of a cluster, by the first vertex
  std::uint32_t clusters = 0;
  for (std::uint32_t v = 0; v < dag.size(); ++v) {
    if (number[cluster[v]] == no_node) number[cluster[v]] = clusters++;
    made.of.push_back(number[cluster[v]]);
  }
  const NetDag unordered = ClusterNets(dag, made.of, clusters).made();
  const std::vector<std::uint32_t> place = places(unordered);
  for (std::uint32_t& each : made.of) each = place[each];
  made.dag = unordered;
  for (std::uint32_t c = 0; c < clusters; ++c) made.dag.weight[place[c]] = unordered.weight[c];
  for (std::uint32_t& maker : made.dag.maker) maker = place[maker];
  for (std::uint32_t n = 0; n < made.dag.nets(); ++n) {
    const std::size_t first = made.dag.readers.first[n], end = made.dag.readers.first[n + 1];
    for (std::size_t i = first; i < end; ++i) made.dag.readers.items[i] = place[made.dag.readers.items[i]];
    std::ranges::sort(std::span(made.dag.readers.items).subspan(first, end - first));
  }
  list_nets(made.dag);
  return made;
}

std::vector<std::uint32_t> acyclic_matching(const NetDag& dag, LevelsFrom from, std::int64_t most,
                                            std::mt19937_64& random) {
  std::vector<std::uint32_t> order(dag.size());
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  Matching matching(dag, from, most);
  for (const std::uint32_t v : order) matching.match(v);
  return std::move(matching).pairs();
}

std::vector<std::uint32_t> grown_parts(const NetDag& dag, std::span<const PartLimit> limits) {
  std::vector<std::uint32_t> best;
  std::pair<double, std::int64_t> least;  // too much in parts, bytes cut
  for (const Growth growth : {Growth::in_order, Growth::depth_first, Growth::closest}) {
    std::vector<std::uint32_t> part = GrowingParts(dag, limits, growth).grow();
    improve_parts(dag, limits, part);
    const std::pair found(overload(dag, limits, part), cut_bytes(dag, part));
    if (!best.empty() && found >= least) continue;
    best = std::move(part);
    least = found;
  }
  return best;
}

void improve_parts(const NetDag& dag, std::span<const PartLimit> limits, std::vector<std::uint32_t>& part) {
  constexpr int passes = 10;
  PartImprovement improvement(dag, limits, part);
  bool has_moved = true;
  for (int i = 0; i < passes && has_moved; i += 2) {
    has_moved = improvement.pass(false);
    has_moved |= improvement.pass(true);
  }
}

std::int64_t cut_bytes(const NetDag& dag, std::span<const std::uint32_t> part) {
  std::int64_t sum = 0;
  std::vector<std::uint32_t> there;
  for (std::uint32_t n = 0; n < dag.nets(); ++n) {
    there.clear();
    for (const std::uint32_t r : dag.readers[n]) {
      if (part[r] != part[dag.maker[n]]) there.push_back(part[r]);
    }
    std::ranges::sort(there);
    sum += dag.bytes[n] * (std::unique(there.begin(), there.end()) - there.begin());
  }
  return sum;
}

}  // namespace plimsoll
