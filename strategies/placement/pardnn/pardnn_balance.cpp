#include "strategies/placement/pardnn/pardnn_balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

// Source: Qararyah et al., "A computational-graph partitioning method for training memory-constrained DNNs" (ParDNN),
// Parallel Computing 2021, section 3.2, heuristic II. Its thresholds for the split are not printed there: ours are the
// constants below. Here the ops that use a parameter move with it.

namespace plimsoll {
namespace {

constexpr double imbalance = 2;          // the first primary's bytes, in means of the others
constexpr double cut_within = 1.0 / 10;  // how far a cut may be from where pieces are equal, in shares

/// By unit: residents that it is the first to use.
std::vector<std::int64_t> bytes_first_used(const OpDag& dag, const Units& units) {
  std::vector<std::int64_t> bytes(units.size(), 0);
  for (const DagResident& resident : dag.residents) bytes[units.of[resident.users.front()]] += resident.bytes;
  return bytes;
}

std::int64_t bytes_made(const OpDag& dag, std::uint32_t v) {
  std::int64_t sum = 0;
  for (const std::uint32_t value : dag.makes[v]) sum += dag.values[value].bytes;
  return sum;
}

/// What each needs so that it has the level that all those below it can be filled to from what the first one has.
std::vector<double> wanted_from_first(std::span<const double> bytes) {
  std::vector<double> sorted(bytes.begin() + 1, bytes.end());
  std::ranges::sort(sorted);
  double level = bytes.front(), sum = bytes.front();
  for (std::size_t i = 0; i < sorted.size() && sorted[i] < level; ++i) {
    sum += sorted[i];
    level = sum / static_cast<double>(i + 2);
  }
  std::vector<double> wanted;
  for (const double each : bytes.subspan(1)) wanted.push_back(std::max(0.0, level - each));
  return wanted;
}

/// A path in stretches that stay whole: each is led by a forward node, with what follows it.
class PathSplit {
 public:
  PathSplit(const OpDag& dag, const Units& units, std::span<const Nanoseconds> transfer,
            std::span<const std::uint32_t> path)
      : dag_(dag), transfer_(transfer), path_(path) {
    const std::vector<std::int64_t> first_use = bytes_first_used(dag, units);
    std::vector<std::size_t> of_unit(units.size(), SIZE_MAX);
    for (std::size_t i = 0; i < path.size(); ++i) {
      const std::uint32_t v = path[i], u = units.of[v];
      const bool is_new = of_unit[u] == SIZE_MAX;
      const bool is_backward = !dag.backward.empty() && dag.backward[v];
      if (is_new && is_backward && i > 0) of_unit[u] = stretch_.back();
      if (is_new && of_unit[u] == SIZE_MAX) {
        of_unit[u] = begin_.size();
        begin_.push_back(i);
        before_.push_back(0);
      }
      stretch_.push_back(of_unit[u]);
      before_[of_unit[u]] += static_cast<double>(bytes_made(dag, v) + (is_new ? first_use[u] : 0));
    }
    for (double& each : before_) each = std::exchange(bytes_, bytes_ + each);
  }

  /// By node of the path: its piece. Pieces have about these bytes, the first one what is left.
  std::vector<std::size_t> pieces(std::span<const double> wanted, double within) const {
    std::vector<std::size_t> piece(begin_.size(), 0);
    double at = bytes_ - std::accumulate(wanted.begin(), wanted.end(), 0.0);
    std::size_t cut = 0;
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      if (!(wanted[k] > 0)) continue;
      cut = cut_behind(cut, at, within);
      for (std::size_t i = cut; i < piece.size(); ++i) piece[i] = k + 1;
      at += wanted[k];
    }
    std::vector<std::size_t> made;
    for (const std::size_t stretch : stretch_) made.push_back(piece[stretch]);
    return made;
  }

 private:
  /// The first stretch behind a cut near so many bytes, of those behind another one; their number if there is none.
  std::size_t cut_behind(std::size_t last, double bytes, double within) const {
    std::size_t best = begin_.size();
    std::tuple<bool, Nanoseconds, double> least;
    for (std::size_t i = last + 1; i < begin_.size(); ++i) {
      const double distance = std::abs(before_[i] - bytes);
      const bool is_far = distance > within;
      const std::tuple found(is_far, is_far ? 0 : sent_to(begin_[i]), distance);
      if (best != begin_.size() && found >= least) continue;
      best = i;
      least = found;
    }
    return best;
  }

  Nanoseconds sent_to(std::size_t position) const {
    const std::uint32_t from = path_[position - 1];
    for (std::size_t e = dag_.out.first[from]; e < dag_.out.first[from + 1]; ++e) {
      if (dag_.out.items[e].node == path_[position]) return transfer_[e];
    }
    return 0;
  }

  const OpDag& dag_;
  const std::span<const Nanoseconds> transfer_;
  const std::span<const std::uint32_t> path_;
  std::vector<std::size_t> stretch_;  // by position on the path
  std::vector<std::size_t> begin_;    // by stretch: position of the node that leads it
  std::vector<double> before_;        // by stretch: bytes of those before it
  double bytes_ = 0;                  // of all
};

/// By path; a resident counts on the first that uses it.
std::vector<double> bytes_of_paths(const OpDag& dag, const Units& units,
                                   const std::vector<std::vector<std::uint32_t>>& paths) {
  const std::vector<std::int64_t> first_use = bytes_first_used(dag, units);
  std::vector<bool> is_seen(units.size(), false);
  std::vector<double> made;
  for (const std::vector<std::uint32_t>& path : paths) {
    std::int64_t sum = 0;
    for (const std::uint32_t v : path) {
      sum += bytes_made(dag, v) + (is_seen[units.of[v]] ? 0 : first_use[units.of[v]]);
      is_seen[units.of[v]] = true;
    }
    made.push_back(static_cast<double>(sum));
  }
  return made;
}

/// What of each kind each processor has, and what all have.
struct Shares {
  std::vector<double> residents, values;
  double all_residents = 0, all_values = 0;

  double ratio(std::size_t p) const {
    return (all_residents > 0 ? residents[p] / all_residents : 0) + (all_values > 0 ? values[p] / all_values : 0);
  }
};

Shares shares_of(const OpDag& dag, std::size_t processors, std::span<const std::uint32_t> on) {
  Shares made{std::vector<double>(processors, 0), std::vector<double>(processors, 0)};
  std::vector<std::uint32_t> there;
  for (const DagResident& resident : dag.residents) {
    there.clear();
    for (const std::uint32_t v : resident.users) there.push_back(on[v]);
    std::ranges::sort(there);
    there.erase(std::unique(there.begin(), there.end()), there.end());
    for (const std::uint32_t p : there) made.residents[p] += static_cast<double>(resident.bytes);
  }
  for (std::uint32_t v = 0; v < dag.size; ++v) made.values[on[v]] += static_cast<double>(bytes_made(dag, v));
  made.all_residents = std::accumulate(made.residents.begin(), made.residents.end(), 0.0);
  made.all_values = std::accumulate(made.values.begin(), made.values.end(), 0.0);
  return made;
}

class ResidentBalance {
 public:
  ResidentBalance(const OpDag& dag, const Units& units, std::vector<std::uint32_t> on)
      : dag_(dag),
        units_(units),
        on_(std::move(on)),
        shares_(shares_of(dag, units.time.size(), on_)),
        uses_(units.size()),
        waiting_(units.time.size()) {
    std::vector<std::int64_t> bytes(units.size(), 0);
    for (std::uint32_t r = 0; r < dag.residents.size(); ++r) {
      for (const std::uint32_t v : dag.residents[r].users) {
        std::vector<std::uint32_t>& uses = uses_[units.of[v]];
        if (!uses.empty() && uses.back() == r) continue;
        uses.push_back(r);
        bytes[units.of[v]] += dag.residents[r].bytes;
      }
    }
    std::vector<std::uint32_t> sorted;
    for (std::uint32_t u = 0; u < units.size(); ++u) {
      if (units.is_free[u] && bytes[u] > 0) sorted.push_back(u);
    }
    std::ranges::stable_sort(sorted, {}, [&](std::uint32_t u) { return bytes[u]; });
    for (const std::uint32_t u : sorted) waiting_[on_[units.nodes[u].front()]].push_back(u);
  }

  std::vector<std::uint32_t> run() && {
    const auto ratio = [&](std::uint32_t p) { return shares_.ratio(p); };
    while (true) {
      const std::uint32_t from = *std::ranges::max_element(units_.field, {}, ratio);
      const std::uint32_t to = *std::ranges::min_element(units_.field, {}, ratio);
      if (waiting_[from].empty() || ratio(from) <= ratio(to)) return std::move(on_);
      const std::uint32_t unit = waiting_[from].back();
      waiting_[from].pop_back();
      const double most = ratio(from);
      move(unit, from, to);
      if (std::max(ratio(from), ratio(to)) >= most) move(unit, to, from);
    }
  }

 private:
  void move(std::uint32_t unit, std::uint32_t from, std::uint32_t to) {
    const auto is_on = [&](std::uint32_t p) { return [this, p](std::uint32_t v) { return on_[v] == p; }; };
    const auto add = [&](std::vector<double>& shares, double& all, std::size_t p, double bytes) {
      shares[p] += bytes;
      all += bytes;
    };
    for (const std::uint32_t r : uses_[unit]) {
      const DagResident& resident = dag_.residents[r];
      if (std::ranges::any_of(resident.users, is_on(to))) continue;
      add(shares_.residents, shares_.all_residents, to, static_cast<double>(resident.bytes));
    }
    for (const std::uint32_t v : units_.nodes[unit]) {
      on_[v] = to;
      const auto bytes = static_cast<double>(bytes_made(dag_, v));
      shares_.values[from] -= bytes;
      shares_.values[to] += bytes;
    }
    for (const std::uint32_t r : uses_[unit]) {
      const DagResident& resident = dag_.residents[r];
      if (std::ranges::any_of(resident.users, is_on(from))) continue;
      add(shares_.residents, shares_.all_residents, from, -static_cast<double>(resident.bytes));
    }
  }

  const OpDag& dag_;
  const Units& units_;
  std::vector<std::uint32_t> on_;
  Shares shares_;
  std::vector<std::vector<std::uint32_t>> uses_;     // by unit: residents
  std::vector<std::vector<std::uint32_t>> waiting_;  // by processor: units that have not been looked at, largest last
};

}  // namespace

Slices with_split_path(const OpDag& dag, const Units& units, std::span<const Nanoseconds> transfer,
                       std::size_t primaries, Slices slices) {
  if (slices.primary.empty() || primaries < 2) return slices;
  slices.primary.resize(std::max(primaries, slices.primary.size()));
  const std::vector<double> bytes = bytes_of_paths(dag, units, slices.primary);
  const double others = std::accumulate(bytes.begin() + 1, bytes.end(), 0.0);
  if (bytes.front() <= imbalance * others / static_cast<double>(bytes.size() - 1)) return slices;
  const double share = (bytes.front() + others) / static_cast<double>(bytes.size());
  const std::vector<std::uint32_t> path = std::move(slices.primary.front());
  const std::vector<std::size_t> piece =
      PathSplit(dag, units, transfer, path).pieces(wanted_from_first(bytes), cut_within * share);
  slices.primary.front().clear();
  for (std::size_t i = 0; i < path.size(); ++i) slices.primary[piece[i]].push_back(path[i]);
  for (std::vector<std::uint32_t>& each : slices.primary) std::ranges::sort(each);
  return slices;
}

std::vector<double> memory_ratios(const OpDag& dag, std::size_t processors, std::span<const std::uint32_t> on) {
  const Shares shares = shares_of(dag, processors, on);
  std::vector<double> made;
  for (std::size_t p = 0; p < processors; ++p) made.push_back(shares.ratio(p));
  return made;
}

std::vector<std::uint32_t> with_balanced_residents(const OpDag& dag, const Units& units,
                                                   std::vector<std::uint32_t> on) {
  if (units.field.size() < 2) return on;
  return ResidentBalance(dag, units, std::move(on)).run();
}

}  // namespace plimsoll
