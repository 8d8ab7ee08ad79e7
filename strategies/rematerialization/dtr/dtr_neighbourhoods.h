#pragma once
// Evicted storages next to each other: their components, for h_DTR_eq, and the evicted neighbourhood of a
// resident storage.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace plimsoll {

// The storages of a running program as the heuristics see them: what they depend on, what they cost, what is evicted.

/// Storages that can be evicted, and those that are never evicted beside them; the latter have no neighbours.
struct DtrStorages {
  std::vector<std::int64_t> compute;                ///< ns of the distinct calls behind all tensors of the storage
  std::vector<std::uint8_t> material;               ///< resident
  std::vector<std::vector<std::uint32_t>> parents;  ///< storages that a tensor on it was computed from, itself excluded
  std::vector<std::vector<std::uint32_t>> children;  ///< the other way round

  std::uint32_t add() {
    compute.push_back(0);
    material.push_back(0);
    parents.emplace_back();
    children.emplace_back();
    return static_cast<std::uint32_t>(compute.size() - 1);
  }

  /// False where they were neighbours that way before.
  bool add_edge(std::uint32_t parent, std::uint32_t child) {
    if (parent == child || std::ranges::find(parents[child], parent) != parents[child].end()) return false;
    parents[child].push_back(parent);
    children[parent].push_back(child);
    return true;
  }

  template <class Visit>
  void for_evicted_neighbours(std::uint32_t s, Visit&& visit) const {
    for (const std::uint32_t n : parents[s]) {
      if (!material[n]) visit(n);
    }
    for (const std::uint32_t n : children[s]) {
      if (!material[n]) visit(n);
    }
  }
  template <class Visit>
  void for_material_neighbours(std::uint32_t s, Visit&& visit) const {
    for (const std::uint32_t n : parents[s]) {
      if (material[n]) visit(n);
    }
    for (const std::uint32_t n : children[s]) {
      if (material[n]) visit(n);
    }
  }
};

/// A set of storages that is emptied in no time.
class Marks {
 public:
  void grow(std::size_t storages) { round_of_.resize(storages, 0); }
  void clear() { ++round_; }
  bool add(std::uint32_t s) {  ///< false where it was in
    if (round_of_[s] == round_) return false;
    round_of_[s] = round_;
    return true;
  }
  bool has(std::uint32_t s) const { return round_of_[s] == round_; }

 private:
  std::vector<std::uint64_t> round_of_;
  std::uint64_t round_ = 1;
};

// Components of evicted storages for h_DTR_eq: union-find with a sum of times at each root. An eviction unites the
// storage with its evicted neighbours; a rematerialisation takes its time out of the sum and leaves the component
// whole. Each component knows the resident storages at its border, so that a new sum reaches only those it concerns.

class DtrComponents {
 public:
  explicit DtrComponents(const DtrStorages& storages) : storages_(storages) {}

  void add_storage();                                        ///< not resident yet: a component of time 0
  void add_edge(std::uint32_t parent, std::uint32_t child);  ///< after it was added to the storages
  void evicted(std::uint32_t storage);
  void materialized(std::span<const std::uint32_t> storages);

  /// Sum over the distinct components next to the storage.
  std::int64_t beside(std::uint32_t storage);

  /// Resident storages next to the component that an evicted storage is in, or was until now; the storage itself may be
  /// among them.
  std::span<const std::uint32_t> border(std::uint32_t storage);

  /// Calls changed(storage) for each resident storage whose sum may have changed since the last time. Most changes are
  /// overtaken by others before anybody asks.
  template <class Changed>
  void report(Changed&& changed) {
    seen_.clear();
    roots_.clear();
    for (const std::uint32_t c : touched_) {
      const std::uint32_t root = root_above(c);
      if (!roots_.add(root)) continue;
      for (const std::uint32_t s : clean_border(root)) {
        if (seen_.add(s)) reported_.push_back(s);
      }
    }
    touched_.clear();
    for (const std::uint32_t s : reported_) changed(s);  // which may look for roots
    reported_.clear();
  }

 private:
  struct Component {
    std::uint32_t parent = 0;  ///< itself: a root
    std::int64_t compute = 0;
    std::vector<std::uint32_t> border;  ///< of a root; some may have been evicted since
  };

  std::uint32_t add_component(std::int64_t compute);
  std::uint32_t root_of(std::uint32_t storage) { return root_above(component_of_[storage]); }
  std::uint32_t root_above(std::uint32_t component);
  std::vector<std::uint32_t>& clean_border(std::uint32_t root);
  void unite(std::uint32_t child_root, std::uint32_t root);

  const DtrStorages& storages_;
  std::vector<Component> components_;
  std::vector<std::uint32_t> component_of_;  // by storage; meaningful while it is not resident
  Marks seen_, in_border_, roots_;
  std::vector<std::uint32_t> touched_, reported_;  // components with a new sum or border; storages to report
};

// The evicted neighbourhood e* of a resident storage: the evicted storages that it reaches downwards through evicted
// ones, and those upwards. What it costs is searched for only when an eviction depends on it; what is known otherwise
// is a lower bound: evictions only add to a neighbourhood, and a rematerialisation tells those next to it what they
// lose. Exact, down to two habits of simrd that its clocks depend on: a result not made yet belongs to a neighbourhood
// only if that was built anew since its call began, and a storage that a view makes dearer while it is evicted counts
// at its former cost until then. Only for logs in which no view joins storages that exist (regions of dtr_runtime.cpp
// have the others).

class DtrNeighbourhoods {
 public:
  DtrNeighbourhoods(const DtrStorages& storages, DtrComponents& components)
      : storages_(storages), components_(components) {}

  void add_storage();

  void begin_call();
  void await(std::uint32_t result);  ///< a new storage of the call that begins
  void became_dearer(std::uint32_t evicted, std::int64_t nanoseconds);

  void evicted(std::uint32_t storage);
  void materialized(std::span<const std::uint32_t> storages);

  /// Never above what the neighbourhood costs; equal to it where `is_exact`.
  std::int64_t below(std::uint32_t s) const { return side_[down][s].cost; }
  std::int64_t above(std::uint32_t s) const { return side_[up][s].cost; }
  bool is_exact(std::uint32_t s) const { return is_exact(down, s) && is_exact(up, s); }
  void sharpen(std::uint32_t s);  ///< makes it exact, or at least twice what it and the storage's own cost were

  /// Storages whose bounds may have changed since `changes` was last cleared.
  std::vector<std::uint32_t> changes;

 private:
  enum Direction : std::uint8_t { down, up };
  enum class Exactly : std::uint8_t { no, yes };
  struct Limit {
    std::int64_t cost = std::numeric_limits<std::int64_t>::max();
    std::size_t storages = std::numeric_limits<std::size_t>::max();
  };
  struct Found {
    std::int64_t cost = 0;
    std::size_t storages = 0;
    bool all = false;
  };
  struct Side {
    std::int64_t cost = 0;     ///< of the evicted storages on that side, or less
    std::int64_t overdue = 0;  ///< what dearer storages there cost more by now than this one counts
    std::uint64_t exact_at = 0;
  };

  bool is_exact(Direction d, std::uint32_t s) const { return side_[d][s].exact_at == now_; }
  bool is_awaited(std::uint32_t s) const { return awaited_in_[s] == call_ && !awaited_.empty(); }
  bool knows_awaited(std::uint32_t s) const { return knows_in_[s] == call_ && !awaited_.empty(); }
  void made(std::span<const std::uint32_t> storages);
  void lose(Direction, std::uint32_t s, std::int64_t most, Exactly);
  void lose_above(std::uint32_t storage, const Found& above);
  Found search(Direction, std::uint32_t from, Limit);
  Found search(Direction direction, std::uint32_t from) { return search(direction, from, Limit{}); }

  const DtrStorages& storages_;
  DtrComponents& components_;
  std::array<std::vector<Side>, 2> side_;             // by storage
  std::vector<std::uint64_t> awaited_in_, knows_in_;  // by storage: the call
  std::vector<std::uint32_t> awaited_;
  std::uint64_t call_ = 1, dearer_in_ = 0, now_ = 1;
  Marks inside_, border_, above_awaited_;
  std::vector<std::uint32_t> stack_, resident_;  // of the last search
};

}  // namespace plimsoll
