#pragma once
// The evicted neighbourhood e* of every resident storage, kept up to date: which evicted storages are reachable
// downwards through evicted ones, which upwards, and the resident storages where that ends.
// An eviction lets the regions at the storage's border absorb its own; a rematerialisation builds anew the regions that
// it borders on. Sums of time are taken when a storage enters a region and not revised when a later alias makes it
// dearer, as in simrd: `clock` equality depends on it.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "strategies/rematerialization/dtr_storages.h"

namespace plimsoll {

class DtrRegions {
 public:
  explicit DtrRegions(const DtrStorages& storages) : storages_(storages) {}

  void add_storage();

  /// A storage that is not resident became dearer: what is kept of the regions differs from what they would be if they
  /// were built anew, as it does in simrd, until they are.
  void became_dearer() { ++epoch_; }

  /// Two storages that existed became neighbours. Regions learn of it only as they are built anew, and from then on
  /// contradict each other: nothing is taken as exact any more.
  void became_neighbours() { trusted_ = false; }

  /// A call begins; and one of its results, not made yet, will be computed from an evicted storage. Regions that are
  /// built anew meanwhile contain that result, as in simrd, and others do not yet.
  void begin_call() { awaited_.clear(); }
  void await(std::uint32_t parent) { awaited_.add(parent); }

  void evicted(std::uint32_t storage);
  void materialized(std::span<const std::uint32_t> storages);

  std::int64_t below(std::uint32_t s) const { return regions_[down][s].compute; }
  std::int64_t above(std::uint32_t s) const { return regions_[up][s].compute; }

  /// Storages whose sums may have changed since `changes` was last cleared.
  std::vector<std::uint32_t> changes;

 private:
  enum Direction : std::uint8_t { down, up };
  struct Region {
    std::vector<std::uint32_t> interior, frontier;
    std::int64_t compute = 0;
    std::uint64_t exact_in = 0;  ///< the epoch in which the region is what building it anew would give
  };

  void absorb(Direction, std::uint32_t base, std::uint32_t storage);
  void rebuild(Direction, std::uint32_t base);

  void gain_leaf(Direction, std::uint32_t base, std::uint32_t leaf);
  void lose(Direction, std::uint32_t base, std::uint32_t storage);
  bool as_if_new(Direction, const Region&) const;

  const DtrStorages& storages_;
  std::uint64_t epoch_ = 0;
  bool trusted_ = true;
  std::array<std::vector<Region>, 2> regions_;  // by storage
  Marks inside_, border_, awaited_;
  std::vector<std::uint32_t> stack_, affected_[2];
};

}  // namespace plimsoll
