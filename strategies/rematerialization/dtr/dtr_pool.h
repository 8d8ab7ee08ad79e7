#pragma once
// Which storage is evicted: what eviction costs by each heuristic, and the choice among those that may be.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/core/names.h"

namespace plimsoll {

// What eviction costs by the heuristics of dynamic tensor rematerialization: the storage of least cost goes first.
// Source: Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, "Dynamic Tensor Rematerialization", 2021.

/// m: bytes of the storage, s: time since its last access, c0: time of the calls that made its tensors.
enum class DtrHeuristic : std::uint8_t {
  dtr,     ///< (c0 + c0 of every evicted storage reachable through evicted ones, up or down) / (m s)
  dtr_eq,  ///< the same with sums over union-find components that are never split
  local,   ///< c0 / (m s)
  lru,     ///< the last access
  size,    ///< 1 / m
  msps,    ///< (c0 + c0 of the evicted ancestors) / m
  random,
};

template <>
struct Names<DtrHeuristic> {
  static constexpr std::array all{std::pair{DtrHeuristic::dtr, "dtr"},      std::pair{DtrHeuristic::dtr_eq, "dtr_eq"},
                                  std::pair{DtrHeuristic::local, "local"},  std::pair{DtrHeuristic::lru, "lru"},
                                  std::pair{DtrHeuristic::size, "size"},    std::pair{DtrHeuristic::msps, "msps"},
                                  std::pair{DtrHeuristic::random, "random"}};
};

/// Whether the cost is divided by the time since the last access.
constexpr bool uses_staleness(DtrHeuristic h) {
  return h == DtrHeuristic::dtr || h == DtrHeuristic::dtr_eq || h == DtrHeuristic::local;
}

/// Whether the cost has the evicted storages on either side in it, each once.
constexpr bool counts_evicted(DtrHeuristic h) {
  return h == DtrHeuristic::dtr || h == DtrHeuristic::msps;
}

/// weight / (bytes * staleness) rounded once, to nearest even, as a quotient of whole numbers of any length is in
/// Python; infinite where the denominator is 0.
double eviction_cost(std::int64_t weight, std::int64_t bytes, std::int64_t staleness);

// The storages that may be evicted, in the order in which they became evictable, and the choice among them: a scan in
// that order in which the last of equal minima wins, and which ends at a cost of 0.
// The scan skips blocks whose bound shows that nothing in them can be chosen: while a storage waits, only its staleness
// changes unless somebody says otherwise, so least weight over greatest staleness stays a bound.

class DtrPool {
 public:
  DtrPool(DtrHeuristic, std::uint64_t seed);

  void add_storage(std::int64_t bytes);  ///< the next one, outside the pool

  void append(std::uint32_t storage);
  void remove(std::uint32_t storage);
  bool contains(std::uint32_t storage) const { return slot_of_[storage] != nowhere; }
  bool empty() const { return live_ == 0; }

  /// The cost is weight / (bytes * (clock - last access)), or what the heuristic makes of it.
  void set_weight(std::uint32_t storage, std::int64_t weight);
  void set_last_access(std::uint32_t storage, std::int64_t clock);

  std::uint32_t choose(std::int64_t clock);  ///< the pool must not be empty

 private:
  static constexpr std::uint32_t nowhere = 0xFFFFFFFF;
  static constexpr std::size_t block = 64;

  struct Best {
    std::uint32_t slot = nowhere;
    double cost = std::numeric_limits<double>::infinity();
    double limit = std::numeric_limits<double>::infinity();  ///< above it nothing is chosen, however it is rounded
  };

  double key(std::uint32_t storage) const;
  double cost(std::uint32_t storage, std::int64_t clock) const;
  void place(std::uint32_t storage);
  void compact();
  bool may_hold_better(std::size_t b, double clock, const Best&) const;
  bool scan(std::size_t b, std::int64_t clock, Best&);
  bool offer(std::uint32_t slot, std::int64_t clock, Best&) const;
  std::uint32_t any();

  DtrHeuristic heuristic_;
  bool stale_;
  std::uint64_t random_;
  std::vector<std::int64_t> bytes_, weight_, last_access_;  // by storage
  std::vector<std::uint32_t> slot_of_;                      // by storage
  std::vector<std::uint32_t> storage_in_;                   // by slot; nowhere: empty
  std::vector<double> key_, since_;                         // by slot: weight / bytes, last access
  std::vector<double> least_key_, least_since_;             // by block: lower bounds
  std::size_t live_ = 0;
};

}  // namespace plimsoll
