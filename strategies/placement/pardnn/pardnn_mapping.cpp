// Source: Qararyah, Wahib, Dikbayir, Belviranli, Unat, "A computational-graph partitioning method for training
// memory-constrained DNNs" (ParDNN), Parallel Computing 2021, section 3.1. O(K (V + E)).

#include "strategies/placement/pardnn/pardnn_mapping.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <tuple>

#include "sim/core/containers/fenwick.h"
#include "strategies/placement/op_dag.h"
#include "strategies/placement/pardnn/pardnn_balance.h"

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

// Source: Qararyah et al., "A computational-graph partitioning method for training memory-constrained DNNs" (ParDNN),
// Parallel Computing 2021, section 3.1; conditions in phase A as the authors' program states them.
// O(passes K E log V), at most log2 V passes.

class LocalityFirst {
 public:
  LocalityFirst(const OpDag& dag, const Machine& machine, PardnnMapping& made, std::span<const Nanoseconds> time,
                std::vector<Nanoseconds> transfer)
      : dag_(dag),
        machine_(machine),
        made_(made),
        time_(time),
        level_(levels_of_slices(transfer)),
        places_(level_.top),
        exchanged_(dag, machine, made.on),
        columns_(made.units.field.size()) {
    find_ratios(transfer);
    std::ranges::sort(places_);
    places_.erase(std::unique(places_.begin(), places_.end()), places_.end());
    total_.assign(places_.size() + 1, 0);
    for (std::uint32_t v = 0; v < dag.size; ++v) total_[place(level_.top[v]) + 1] += time[v];
    std::partial_sum(total_.begin(), total_.end(), total_.begin());
    tree_.emplace(places_.size(), columns_);
    work_.resize(columns_);
    const std::vector<std::uint32_t> fastest = made.units.fastest_first();
    for (std::uint32_t v = 0; v < dag.size; ++v) {
      if (made.on[v] != no_node) note(v);
    }
    for (std::size_t i = 0; i < made.slices.primary.size(); ++i) map(made.slices.primary[i], fastest[i]);
    for (std::uint32_t s = 0; s < made.slices.secondary.size(); ++s) find_span(s);
  }

  void run() {
    std::vector<std::uint32_t> waiting(spans_.size());
    std::iota(waiting.begin(), waiting.end(), 0u);
    std::ranges::stable_sort(waiting, std::greater<>(), [&](std::uint32_t s) { return spans_[s].criticality; });
    for (auto passes = std::bit_width(dag_.size); passes > 0; --passes) {
      const std::size_t before = waiting.size();
      look_ahead(waiting);
      if (waiting.size() == before) break;
    }
    for (const std::uint32_t s : waiting) balance(s);
  }

 private:
  /// Where a path may run: between the end of the last it waits for and the start of the first that waits for it.
  struct Span {
    std::size_t begin = 0, end = 0;  // places
    std::size_t self = 0;            // its first node's place
    Nanoseconds criticality = 0, weight = 0;
  };

  /// Transfers within a path are 0.
  Levels levels_of_slices(std::vector<Nanoseconds> transfer) const {
    std::vector<std::uint32_t> path(dag_.size, no_node);
    std::uint32_t number = 0;
    for (const auto& paths : {made_.slices.primary, made_.slices.secondary}) {
      for (const std::vector<std::uint32_t>& each : paths) {
        for (const std::uint32_t v : each) path[v] = number;
        ++number;
      }
    }
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      for (std::size_t e = dag_.out.first[v]; e < dag_.out.first[v + 1]; ++e) {
        if (path[v] != no_node && path[v] == path[dag_.out.items[e].node]) transfer[e] = 0;
      }
    }
    return levels(dag_, time_, transfer);
  }

  /// All transfers to all work, and all work to the first critical path.
  void find_ratios(std::span<const Nanoseconds> transfer) {
    const auto sum = [](std::span<const Nanoseconds> times) {
      return static_cast<double>(std::accumulate(times.begin(), times.end(), Nanoseconds{0}));
    };
    const double work = std::max(1.0, sum(time_));
    const Levels all = levels(dag_, time_, transfer);
    const auto longest = static_cast<double>(*std::ranges::max_element(all.bottom));
    transfers_to_work_ = sum(transfer) / work;
    parallelism_ = work / std::max(1.0, longest);
  }

  std::size_t place(Nanoseconds level) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(places_, level) - places_.begin());
  }

  std::size_t column(std::uint32_t p) const {
    return static_cast<std::size_t>(std::ranges::lower_bound(made_.units.field, p) - made_.units.field.begin());
  }

  void note(std::uint32_t v) {
    const std::uint32_t p = made_.on[v];
    if (std::ranges::binary_search(made_.units.field, p)) {
      tree_->add(place(level_.top[v]), column(p), time_on(dag_, machine_, v, p));
    }
  }

  void map(std::span<const std::uint32_t> nodes, std::uint32_t p) {
    for (const std::uint32_t v : nodes) {
      made_.on[v] = p;
      note(v);
    }
  }

  void find_span(std::uint32_t s) {
    const std::vector<std::uint32_t>& path = made_.slices.secondary[s];
    Nanoseconds begin = 0, end = cannot_run;
    for (const DagEdge& edge : dag_.in[path.front()]) {
      begin = std::max(begin, level_.top[edge.node] + time_[edge.node]);
    }
    for (const DagEdge& edge : dag_.out[path.back()]) end = std::min(end, level_.top[edge.node]);
    Span& span = spans_.emplace_back();
    span.self = place(level_.top[path.front()]);
    span.begin = place(begin);
    span.end = std::max(place(end), place(level_.top[path.back()]) + 1);
    for (const std::uint32_t v : path) {
      span.criticality = std::max(span.criticality, level_.top[v] + level_.bottom[v]);
      span.weight += time_[v];
    }
  }

  /// One pass over what is not mapped: the more critical half, then five tenths, each with short spans first.
  void look_ahead(std::vector<std::uint32_t>& waiting) {
    std::vector<std::uint32_t> sorted = waiting;
    for (std::size_t begin = 0, tenth = 5; tenth <= 10; ++tenth) {
      const std::size_t end = sorted.size() * tenth / 10;
      const auto length = [&](std::uint32_t s) { return spans_[s].end - spans_[s].begin; };
      std::ranges::stable_sort(sorted.begin() + static_cast<std::ptrdiff_t>(begin),
                               sorted.begin() + static_cast<std::ptrdiff_t>(end), {}, length);
      for (; begin < end; ++begin) consider(sorted[begin]);
    }
    std::erase_if(waiting, [&](std::uint32_t s) { return made_.on[made_.slices.secondary[s].front()] != no_node; });
  }

  void consider(std::uint32_t s) {
    const std::vector<std::uint32_t>& path = made_.slices.secondary[s];
    const std::span<const Nanoseconds> with = exchanged_.by(path);
    Nanoseconds all = 0, most = 0;
    std::uint32_t best = made_.units.field.front();
    for (const std::uint32_t p : made_.units.field) {
      all += with[p];
      if (with[p] <= most) continue;
      most = with[p];
      best = p;
    }
    const bool is_total = most > machine_.mean_latency && all == most && with.back() == 0;
    const auto processors = static_cast<double>(columns_);
    const bool is_slow = std::ceil(transfers_to_work_) >= std::max(10.0, 2 * parallelism_);
    const bool is_most = is_slow && most > 0 &&
                         static_cast<double>(most) > static_cast<double>(all + with.back()) / processors &&
                         (all == most || 2 * most > all);
    if ((is_total || is_most) && keeps_balance(s, best, most, all, is_total)) map(path, best);
  }

  bool keeps_balance(std::uint32_t s, std::uint32_t p, Nanoseconds most, Nanoseconds all, bool is_total) {
    const Span& span = spans_[s];
    const auto [own, delay] = work_of(p, span);
    const Nanoseconds weight = span.weight, with_it = weight + own;
    const auto [least, greatest] = std::ranges::minmax(work_);
    const Nanoseconds total = total_[span.end] - total_[span.begin];
    const Nanoseconds mapped = std::accumulate(work_.begin(), work_.end(), Nanoseconds{0});
    const auto processors = static_cast<Nanoseconds>(columns_);
    if (with_it <= total / processors) return true;
    if (all != most) {
      const Nanoseconds other = least + weight + most - all / processors + delay;
      return std::min(greatest, other) >= with_it || most >= std::max(greatest, with_it);
    }
    const Nanoseconds open = std::max<Nanoseconds>(0, total - mapped);
    if (std::max(greatest, least + weight + most + delay + open / processors) >= with_it) return true;
    return with_it <= weight + most || (is_total && most >= greatest - least);
  }

  struct Work {
    Nanoseconds in_span = 0, before = 0;  // before: from the span's begin to its path's first node
  };

  /// Leaves the work of all in the span in `work_`.
  Work work_of(std::uint32_t p, const Span& span) {
    tree_->sum(span.begin, span.self, work_);
    const Nanoseconds before = work_[column(p)];
    tree_->sum(span.begin, span.end, work_);
    return {work_[column(p)], before};
  }

  /// Where work in the span and transfers with other processors are least; of equals where more is exchanged.
  void balance(std::uint32_t s) {
    const std::vector<std::uint32_t>& path = made_.slices.secondary[s];
    const std::span<const Nanoseconds> with = exchanged_.by(path);
    tree_->sum(spans_[s].begin, spans_[s].end, work_);
    std::uint32_t best = no_node;
    Nanoseconds least = 0;
    for (std::size_t c = 0; c < columns_; ++c) {
      const std::uint32_t p = made_.units.field[c];
      Nanoseconds cost = work_[c] - with[p];
      for (const std::uint32_t v : path) cost += time_on(dag_, machine_, v, p);
      if (best != no_node && (cost > least || (cost == least && with[p] <= with[best]))) continue;
      best = p;
      least = cost;
    }
    map(path, best);
  }

  const OpDag& dag_;
  const Machine& machine_;
  PardnnMapping& made_;
  const std::span<const Nanoseconds> time_;
  const Levels level_;
  std::vector<Nanoseconds> places_;  // all top levels, ascending
  Exchanged exchanged_;
  const std::size_t columns_;
  std::vector<Nanoseconds> total_;  // by place: work before it
  std::optional<FenwickRows> tree_;
  std::vector<Nanoseconds> work_;  // of each of the field in one span
  std::vector<Span> spans_;        // by secondary path
  double transfers_to_work_ = 0, parallelism_ = 0;
};

bool is_group(const Units& units, std::uint32_t u) {
  return units.is_free[u] && units.nodes[u].size() > 1;
}

/// Where the other end of the largest of these edges is, of those that are somewhere.
std::uint32_t nearest(std::span<const DagEdge> edges, std::span<const std::uint32_t> on) {
  std::uint32_t found = no_node;
  std::int64_t most = -1;
  for (const DagEdge& edge : edges) {
    if (on[edge.node] == no_node || edge.bytes <= most) continue;
    most = edge.bytes;
    found = on[edge.node];
  }
  return found;
}

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

Exchanged::Exchanged(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on)
    : dag_(dag),
      machine_(machine),
      on_(on),
      with_(machine.size() + 1),
      sent_(with_.size()),
      is_in_(dag.size, false),
      received_(dag.size, -1) {}

std::span<const Nanoseconds> Exchanged::by(std::span<const std::uint32_t> nodes) {
  std::ranges::fill(with_, 0);
  for (const std::uint32_t v : nodes) is_in_[v] = true;
  makers_.clear();
  for (const std::uint32_t v : nodes) {
    std::ranges::fill(sent_, 0);
    for (const DagEdge& edge : dag_.out[v]) {
      if (is_in_[edge.node] || !edge.sends) continue;
      Nanoseconds& sent = sent_[slot(edge.node)];
      sent = std::max(sent, machine_.mean_transfer(edge.bytes));
    }
    for (std::size_t p = 0; p < with_.size(); ++p) with_[p] += sent_[p];
    for (const DagEdge& edge : dag_.in[v]) {
      if (is_in_[edge.node] || !edge.sends) continue;
      if (received_[edge.node] < 0) makers_.push_back(edge.node);
      received_[edge.node] = std::max(received_[edge.node], machine_.mean_transfer(edge.bytes));
    }
  }
  for (const std::uint32_t u : makers_) {
    with_[slot(u)] += received_[u];
    received_[u] = -1;
  }
  for (const std::uint32_t v : nodes) is_in_[v] = false;
  return with_;
}

PardnnMapping pardnn_mapping(const OpDag& dag, const Machine& machine, Units units, LongestPath longest) {
  PardnnMapping made{std::move(units), {}, std::vector<std::uint32_t>(dag.size, no_node)};
  if (dag.size == 0) return made;
  Assignment fixed(made.units);
  std::vector<bool> may_cut(dag.size);
  for (std::uint32_t u = 0; u < made.units.size(); ++u) {
    if (!made.units.is_free[u]) fixed.put_least_loaded(std::span(&u, 1));
    for (const std::uint32_t v : made.units.nodes[u]) {
      may_cut[v] = made.units.is_free[u];
      if (!may_cut[v]) made.on[v] = fixed.on(u);
    }
  }
  const std::vector<Nanoseconds> time = mean_times(dag, machine);
  std::vector<Nanoseconds> transfer = mean_transfers(dag, machine);
  made.slices = pardnn_slices(dag, time, transfer, made.units.field.size(), may_cut);
  if (longest == LongestPath::split) {
    made.slices = with_split_path(dag, made.units, transfer, made.units.field.size(), std::move(made.slices));
  }
  LocalityFirst(dag, machine, made, time, std::move(transfer)).run();
  return made;
}

void collocate(const OpDag& dag, const Machine& machine, const Units& units, std::vector<std::uint32_t>& on) {
  Exchanged exchanged(dag, machine, on);
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!is_group(units, u)) continue;
    std::vector<Nanoseconds> score(machine.size(), 0);
    const std::span<const Nanoseconds> with = exchanged.by(units.nodes[u]);
    for (std::size_t p = 0; p < score.size(); ++p) score[p] = with[p];
    for (const std::uint32_t v : units.nodes[u]) score[on[v]] += time_on(dag, machine, v, on[v]);
    std::uint32_t best = units.field.front();
    for (const std::uint32_t p : units.field) best = score[p] > score[best] ? p : best;
    for (const std::uint32_t v : units.nodes[u]) on[v] = best;
  }
}

std::optional<std::vector<std::uint32_t>> near_groups(const OpDag& dag, const Machine& machine, const Units& units) {
  std::vector<std::uint32_t> on(dag.size, no_node);
  std::vector<double> work(units.size(), 0);  // of groups
  double all = 0;
  const std::vector<Nanoseconds> time = mean_times(dag, machine);
  for (std::uint32_t u = 0; u < units.size(); ++u) {
    if (!is_group(units, u)) continue;
    for (const std::uint32_t v : units.nodes[u]) work[u] += static_cast<double>(time[v]);
    all += work[u];
  }
  if (!(all > 0)) return std::nullopt;
  const std::vector<double> share = shares(units);
  std::vector<double> filled(units.field.size(), 0);
  Exchanged exchanged(dag, machine, on);
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    const std::uint32_t u = units.of[v];
    if (!is_group(units, u)) {
      on[v] = nearest(dag.in[v], on);
      continue;
    }
    if (on[v] != no_node) continue;
    const std::span<const Nanoseconds> with = exchanged.by(units.nodes[u]);
    std::size_t best = 0, emptiest = 0;
    bool has_room = false;
    const auto filling = [&](std::size_t f) { return (filled[f] + work[u]) / std::max(share[f], 1e-9); };
    for (std::size_t f = 0; f < filled.size(); ++f) {
      if (filling(f) < filling(emptiest)) emptiest = f;
      if (filled[f] + work[u] / 2 > share[f] * all) continue;
      if (has_room && with[units.field[f]] <= with[units.field[best]]) continue;
      best = f;
      has_room = true;
    }
    if (!has_room || with[units.field[best]] == 0) best = emptiest;
    filled[best] += work[u];
    for (const std::uint32_t member : units.nodes[u]) on[member] = units.field[best];
  }
  for (std::uint32_t v = dag.size; v-- > 0;) {
    if (on[v] == no_node) on[v] = nearest(dag.out[v], on);
    if (on[v] == no_node) on[v] = units.field.front();
  }
  return on;
}

}  // namespace plimsoll
