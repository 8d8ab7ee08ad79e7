#pragma once
// The evicted neighbourhood e* of a resident storage: the evicted storages that it reaches downwards through evicted
// ones, and those upwards. What it costs is searched for only when an eviction depends on it; what is known otherwise
// is a lower bound: evictions only add to a neighbourhood, and a rematerialisation tells those next to it what they
// lose. Exact, down to two habits of simrd that its clocks depend on: a result not made yet belongs to a neighbourhood
// only if that was built anew since its call began, and a storage that a view makes dearer while it is evicted counts
// at its former cost until then. Only for logs in which no view joins storages that exist (regions of dtr_runtime.cpp
// have the others).

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "strategies/rematerialization/dtr/dtr_components.h"
#include "strategies/rematerialization/dtr/dtr_storages.h"

namespace plimsoll {

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
