#pragma once
// Plans that look at the whole iteration, for budgets at which what one instant keeps does not fit elsewhere as it is:
// those of `greedy_recompute`, and of `rockmate`'s blocks (/docs/strategies/rematerialization/snapshot.md).

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

class WholePlans {
 public:
  /// What memory they are for.
  struct Range {
    Bytes floor;  ///< no schedule without copies fits less
    Bytes below;  ///< nobody asks for them from there on
  };
  /// Blocks are cut where greedy plans do not come near the floor, for less than they need and for less than half of
  /// the range's end. `fastest` is what plans without copies take within a budget that are none of these, infinite
  /// where there is none. Plans that are faster than that where nobody asks for them any more are left out: so more
  /// memory is never slower. The task and the model must outlive it.
  WholePlans(const PartTask&, const OpModel&, const Range&, std::function<Seconds(Bytes)> fastest);

  /// The fastest within the budget; null where none fits, or the part is too large to ask.
  const PlannedTape* at(Bytes budget);
  /// The least budget that one fits; nothing where there is none.
  std::optional<Bytes> least();
  /// At which the answer changes, of many some; none of a large part.
  std::vector<Bytes> budgets();

 private:
  const PlanPool& greedy();
  const PlanPool& blocks();
  Bytes blocks_below();
  void add(PlanPool&, const OpSequence&, Seconds fastest) const;

  const PartTask& task_;
  const OpModel& model_;
  Range range_;
  std::function<Seconds(Bytes)> fastest_;
  PlanPool greedy_, blocks_;
  bool asked_greedy_ = false, asked_blocks_ = false;
};

}  // namespace plimsoll
