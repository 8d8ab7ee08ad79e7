#pragma once
// The evicted neighbourhood e* of every resident storage as sets that are kept at every step: which evicted storages
// are reachable downwards through evicted ones, which upwards, and the resident storages where that ends. For logs in
// which a view joins storages that exist: regions learn of it only as they are built anew, and contradict each other
// until then, so that nothing but their history gives simrd's decisions. All others are faster with
// dtr_neighbourhoods.h. An eviction lets the regions at the storage's border absorb its own; a rematerialisation builds
// anew the regions that it borders on. Sums of time are taken when a storage enters a region and not revised when a
// later alias makes it dearer, as in simrd: `clock` equality depends on it.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "strategies/rematerialization/dtr/dtr_storages.h"

namespace plimsoll {

class DtrRegions {
 public:
  explicit DtrRegions(const DtrStorages& storages) : storages_(storages) {}

  void add_storage();

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
  };

  void absorb(Direction, std::uint32_t base, std::uint32_t storage);
  void rebuild(Direction, std::uint32_t base);

  const DtrStorages& storages_;
  std::array<std::vector<Region>, 2> regions_;  // by storage
  Marks inside_, border_;
  std::vector<std::uint32_t> stack_, affected_[2];
};

}  // namespace plimsoll
