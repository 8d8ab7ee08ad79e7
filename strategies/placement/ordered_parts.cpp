#include "strategies/placement/ordered_parts.h"

#include <algorithm>
#include <array>
#include <optional>
#include <queue>

namespace plimsoll {
namespace {

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

class Improvement {
 public:
  Improvement(const NetDag& dag, std::span<const PartLimit> limits, std::vector<std::uint32_t>& part)
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
  Improvement improvement(dag, limits, part);
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
