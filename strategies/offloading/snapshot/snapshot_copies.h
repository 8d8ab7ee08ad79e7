#pragma once
// Plans that keep more at the instant than fits: what has no room there leaves for the host before, and comes back
// after.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "sim/bound/snapshot_cut.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/snapshot/snapshot_plans.h"

namespace plimsoll {

class SnapshotCopies {
 public:
  /// Null where the device has no host that it reaches both ways.
  static std::optional<SnapshotCopies> make(const PartTask&, SnapshotPlans&);

  /// The fastest of those for all levels of memory up to the budget; null where none fits. So more memory is never
  /// slower.
  const PlannedTape* best(std::optional<Bytes> budget);
  /// The least level for which there is one.
  std::optional<Bytes> least();
  /// What no schedule of one micro-batch can beat; infinite where none fits.
  Seconds bound(Bytes budget) { return bound_->at(budget); }

  /// Levels, of many some.
  std::vector<Bytes> budgets() const;

 private:
  SnapshotCopies(const PartTask&, SnapshotPlans&, CopyRate out);

  /// With a share of what could be kept at most: the copies that make it fit, and how long it takes if nobody shares
  /// the links.
  struct Placed {
    OffloadModel model;
    std::vector<OffloadMove> moves;
    Seconds makespan;
  };
  /// Nothing, too, where that is no faster than the fastest so far.
  std::optional<Placed> placed(Bytes budget, double share, std::optional<Seconds> fastest) const;
  std::optional<PlannedTape> within(Bytes budget) const;
  const PlannedTape* at_level(std::size_t level);

  /// That one, with what it was asked.
  class Bound {
   public:
    Bound(const PartTask&, OpId instant, BytesPerSecond out);
    Seconds at(Bytes budget);

   private:
    SnapshotModel model_;
    bool all_leaves_;  ///< at once
    SnapshotCuts cuts_;
    std::map<Bytes, Seconds> asked_;
  };

  const PartTask& task_;
  SnapshotPlans& plans_;
  CopyRate out_;
  std::unique_ptr<Bound> bound_;
  Seconds before_;                                             // work before the instant
  std::vector<Bytes> levels_;                                  // of memory, ascending
  std::map<std::size_t, std::optional<PlannedTape>> planned_;  // by level
};

}  // namespace plimsoll
