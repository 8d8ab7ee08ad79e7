#include "strategies/placement/pardnn/pardnn_mapping.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "strategies/placement/fenwick.h"
#include "strategies/placement/lists/levels.h"
#include "strategies/placement/pardnn/pardnn_balance.h"
#include "strategies/placement/pardnn/pardnn_exchange.h"

// Source: Qararyah et al., "A computational-graph partitioning method for training memory-constrained DNNs" (ParDNN),
// Parallel Computing 2021, section 3.1; conditions in phase A as the authors' program states them.
// O(passes K E log V), at most log2 V passes.

namespace plimsoll {
namespace {

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

}  // namespace

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

}  // namespace plimsoll
