#include "tests/placement/placement_oracle.h"

#include <algorithm>
#include <tuple>

namespace plimsoll {
namespace {

constexpr std::uint32_t unplaced = no_node;

/// Places ops one after another by start, finish and number, which is a way to reach each semi-active schedule once:
/// with these three a valid order of the graph and of each processor ascends (ops without time that change places in
/// one instant change no time and no bytes).
class ExhaustiveSearch {
 public:
  ExhaustiveSearch(const OpDag& dag, const Machine& machine, std::vector<std::int64_t> limits, bool least_bytes)
      : dag_(dag),
        machine_(machine),
        limits_(std::move(limits)),
        least_bytes_(least_bytes),
        on_(dag.size, unplaced),
        start_(dag.size, 0),
        finish_(dag.size, 0),
        free_(machine.size(), 0),
        path_(dag.size, 0),
        fastest_(dag.size, cannot_run),
        order_(machine.size()) {
    for (std::uint32_t v = dag.size; v-- > 0;) {
      for (std::size_t p = 0; p < machine.size(); ++p) {
        fastest_[v] = std::min(fastest_[v], time_on(dag, machine, v, p));
      }
      can_run_ = can_run_ && fastest_[v] != cannot_run;
      if (!can_run_) return;
      for (const DagEdge& edge : dag.out[v]) path_[v] = std::max(path_[v], path_[edge.node]);
      path_[v] += fastest_[v];
      work_ += fastest_[v];
      needed_ = std::max(needed_, bytes_needed_by(v));
    }
    for (std::size_t p = 0; p < machine.size(); ++p) {
      for (std::size_t q = 0; q < machine.size(); ++q) alike_.push_back(interchangeable(p, q));
    }
  }

  std::optional<ExactPlacement> run() {
    if (can_run_) extend(0);
    return best_;
  }

  std::int64_t best_bytes() const { return best_bytes_; }

 private:
  using Key = std::tuple<Nanoseconds, Nanoseconds, std::uint32_t>;

  /// Bytes that are on an op's processor while it runs, wherever that is.
  std::int64_t bytes_needed_by(std::uint32_t v) const {
    std::int64_t bytes = fastest_[v] > 0 ? dag_.workspace[v] : 0;
    for (const DagResident& resident : dag_.residents) {
      if (std::ranges::find(resident.users, v) != resident.users.end()) bytes += resident.bytes;
    }
    if (fastest_[v] == 0) return bytes;
    for (const std::uint32_t value : dag_.makes[v]) bytes += dag_.values[value].bytes;
    for (const std::uint32_t value : dag_.reads[v]) bytes += dag_.values[value].bytes;
    return bytes;
  }

  /// Whether nothing changes when the two change names.
  bool interchangeable(std::size_t p, std::size_t q) const {
    if (machine_.class_of[p] != machine_.class_of[q] || limits_[p] != limits_[q]) return false;
    const auto renamed = [&](std::size_t r) { return r == p ? q : r == q ? p : r; };
    for (std::size_t a = 0; a < machine_.size(); ++a) {
      for (std::size_t b = 0; b < machine_.size(); ++b) {
        const std::size_t here = a * machine_.size() + b, there = renamed(a) * machine_.size() + renamed(b);
        if (a == b) continue;
        if (machine_.latency[here] != machine_.latency[there]) return false;
        if (machine_.nanoseconds_per_byte[here] != machine_.nanoseconds_per_byte[there]) return false;
      }
    }
    return true;
  }

  bool stands_for_another(std::size_t p) const {
    if (!order_[p].empty()) return false;
    for (std::size_t q = 0; q < p; ++q) {
      if (order_[q].empty() && alike_[p * machine_.size() + q]) return true;
    }
    return false;
  }

  Nanoseconds sent(std::uint32_t value, std::size_t q) const {
    const std::uint32_t maker = dag_.values[value].maker;
    return finish_[maker] + (on_[maker] == q ? 0 : machine_.transfer(on_[maker], q, dag_.values[value].bytes));
  }

  bool may_be_on(std::uint32_t v, std::size_t p) const {
    if (time_on(dag_, machine_, v, p) == cannot_run || stands_for_another(p)) return false;
    if (dag_.group[v] == no_node) return true;
    return std::ranges::all_of(dag_.together[dag_.group[v]],
                               [&](std::uint32_t other) { return on_[other] == unplaced || on_[other] == p; });
  }

  Nanoseconds earliest(std::uint32_t v, std::size_t p) const {
    Nanoseconds at = free_[p];
    for (const DagEdge& edge : dag_.in[v]) at = std::max(at, finish_[edge.node]);
    for (const std::uint32_t value : dag_.reads[v]) {
      if (dag_.values[value].maker != no_node) at = std::max(at, sent(value, p));
    }
    return at;
  }

  bool inputs_placed(std::uint32_t v) const {
    return std::ranges::all_of(dag_.in[v], [&](const DagEdge& edge) { return on_[edge.node] != unplaced; });
  }

  /// No completion of what is placed ends before this: each op that is not placed starts no sooner than the last one
  /// that is, and its longest path follows; and processors cannot do more than the work that is left.
  Nanoseconds earliest_end() const {
    const Nanoseconds now = std::get<0>(last_);
    Nanoseconds end = 0, idle_until = 0;
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      if (on_[v] != unplaced) {
        end = std::max(end, start_[v] + path_[v]);
        end = std::max(end, finish_[v]);
        continue;
      }
      Nanoseconds at = now;
      for (const DagEdge& edge : dag_.in[v]) {
        if (on_[edge.node] != unplaced) at = std::max(at, finish_[edge.node]);
      }
      end = std::max(end, at + path_[v]);
    }
    for (const Nanoseconds free : free_) idle_until += std::max(free, now);
    if (work_ == 0) return end;
    const auto processors = static_cast<Nanoseconds>(machine_.size());
    return std::max(end, (idle_until + work_ + processors - 1) / processors);
  }

  struct Stay {
    Nanoseconds from, until;
    std::int64_t bytes;
  };

  /// When a value is on p because of the ops that are placed; later ones only make it longer.
  Stay stay_of(std::uint32_t value, std::size_t p) const {
    const DagValue& each = dag_.values[value];
    Stay stay{cannot_run, 0, each.bytes};
    const bool home = each.maker != no_node && on_[each.maker] == p;
    if (home) stay = {start_[each.maker], finish_[each.maker], each.bytes};
    for (const std::uint32_t reader : each.readers) {
      if (on_[reader] == unplaced) continue;
      if (on_[reader] == p) {
        const Nanoseconds from = each.maker == no_node ? start_[reader] : finish_[each.maker];
        stay.from = std::min(stay.from, from);
        stay.until = std::max(stay.until, finish_[reader]);
      } else if (home) {
        stay.until = std::max(stay.until, sent(value, on_[reader]));
      }
    }
    return stay;
  }

  std::int64_t most_bytes(std::size_t p) {
    stays_.clear();
    const auto add = [&](Stay stay) {
      if (stay.from < stay.until && stay.bytes > 0) stays_.push_back(stay);
    };
    std::int64_t always = 0;
    for (const DagResident& resident : dag_.residents) {
      Nanoseconds first = cannot_run;
      for (const std::uint32_t user : resident.users) {
        if (on_[user] == p) first = std::min(first, start_[user]);
      }
      if (first == cannot_run) continue;
      if (resident.appears) {
        add({first, cannot_run, resident.bytes});
      } else {
        always += resident.bytes;
      }
    }
    for (const std::uint32_t v : order_[p]) add({start_[v], finish_[v], dag_.workspace[v]});
    for (std::uint32_t value = 0; value < dag_.values.size(); ++value) add(stay_of(value, p));
    std::int64_t most = 0;
    for (const Stay& at : stays_) {
      std::int64_t bytes = 0;
      for (const Stay& other : stays_) {
        if (other.from <= at.from && at.from < other.until) bytes += other.bytes;
      }
      most = std::max(most, bytes);
    }
    return always + most;
  }

  /// Whether what is placed can still become better than the best; all bytes of it are there in any completion too.
  bool may_improve() {
    if (!least_bytes_ && best_ && earliest_end() >= best_->makespan) return false;
    for (std::size_t p = 0; p < machine_.size(); ++p) {
      const std::int64_t limit = least_bytes_ ? best_bytes_ - 1 : limits_[p];
      if (limit != unlimited_bytes && most_bytes(p) > limit) return false;
    }
    return true;
  }

  void keep_best() {
    Nanoseconds makespan = 0;
    for (const Nanoseconds finish : finish_) makespan = std::max(makespan, finish);
    best_ = ExactPlacement{{on_, order_}, start_, makespan};
    best_bytes_ = 0;
    for (std::size_t p = 0; p < machine_.size(); ++p) best_bytes_ = std::max(best_bytes_, most_bytes(p));
  }

  void extend(std::uint32_t placed) {
    if (placed == dag_.size) return keep_best();
    for (std::uint32_t v = 0; v < dag_.size; ++v) {
      if (on_[v] != unplaced || !inputs_placed(v)) continue;
      for (std::uint32_t p = 0; p < machine_.size(); ++p) {
        if (least_bytes_ && best_ && best_bytes_ <= needed_) return;  // none can be less
        if (!may_be_on(v, p)) continue;
        const Nanoseconds start = earliest(v, p);
        const Key key{start, start + time_on(dag_, machine_, v, p), v};
        if (key < last_) continue;
        place_and_extend(v, p, key, placed);
      }
    }
  }

  void place_and_extend(std::uint32_t v, std::uint32_t p, const Key& key, std::uint32_t placed) {
    const Key last_before = last_;
    const Nanoseconds free_before = free_[p];
    on_[v] = p;
    std::tie(start_[v], finish_[v], std::ignore) = key;
    last_ = key;
    free_[p] = finish_[v];
    order_[p].push_back(v);
    work_ -= fastest_[v];
    if (may_improve()) extend(placed + 1);
    work_ += fastest_[v];
    order_[p].pop_back();
    free_[p] = free_before;
    last_ = last_before;
    on_[v] = unplaced;
  }

  const OpDag& dag_;
  const Machine& machine_;
  std::vector<std::int64_t> limits_;
  bool least_bytes_;  ///< looks for the fewest bytes on the processor with the most, else for the least makespan

  // What is placed.
  std::vector<std::uint32_t> on_;
  std::vector<Nanoseconds> start_, finish_;
  std::vector<Nanoseconds> free_;  ///< by processor
  Key last_{0, 0, 0};              ///< of the op placed last
  Nanoseconds work_ = 0;           ///< of all that are not placed, each where it is fastest

  // What never changes.
  std::vector<Nanoseconds> path_, fastest_;  ///< by node: the longest path from it without transfers; the least time
  bool can_run_ = true;
  std::int64_t needed_ = 0;
  std::vector<bool> alike_;

  std::vector<std::vector<std::uint32_t>> order_;
  std::vector<Stay> stays_;
  std::optional<ExactPlacement> best_;
  std::int64_t best_bytes_ = unlimited_bytes;
};

}  // namespace

std::optional<ExactPlacement> least_makespan(const OpDag& dag, const Machine& machine,
                                             std::span<const std::int64_t> limits) {
  return ExhaustiveSearch(dag, machine, {limits.begin(), limits.end()}, false).run();
}

std::optional<std::int64_t> smallest_limit(const OpDag& dag, const Machine& machine) {
  ExhaustiveSearch search(dag, machine, std::vector(machine.size(), unlimited_bytes), true);
  if (!search.run()) return std::nullopt;
  return search.best_bytes();
}

}  // namespace plimsoll
