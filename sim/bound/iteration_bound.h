#pragma once
// What no schedule of an iteration on one device within a memory budget can beat, by the best of several instants.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/bound/snapshot_cut.h"

namespace plimsoll {

struct IterationBound {
  Seconds time;                ///< no schedule is faster
  std::optional<OpId> at;      ///< the instant that it comes from; unset: all ops once, whatever the budget
  double price = 0;            ///< there, of a byte, in seconds
  std::optional<Bytes> needs;  ///< set: no schedule fits the budget; the least that the instant leaves
};

/// What less memory asks for.
enum class Flip : std::uint8_t {
  repeats,     ///< ops run again
  waits,       ///< nothing but time in which more can leave
  many_calls,  ///< the backward is no longer one call of autograd
  nothing,     ///< nothing fits
};

/// A budget at which other cuts are the best from then on: there the bound bends.
struct BoundBend {
  Bytes budget;
  std::optional<OpId> at;  ///< the instant, or the op that needs the most, if any
  Flip flip{};             ///< from there downwards
  std::vector<OpId> ops;   ///< that run again, of `repeats`, ascending; may be none where others run later
  Seconds time;            ///< until the next bend below: what their runs add
  Bytes bytes;             ///< likewise: what the budget is less
};
struct BoundBends {
  std::optional<BoundBend> below, above;  ///< the nearest, at most the budget and above it
};

/// The rate at which values can leave the device for its host and its disk, by all links together.
BytesPerSecond ways_out(const Platform&, DeviceId);

/// The op at which most is live if ops run in the given order, each once.
OpId fullest_op(const SnapshotModel&);

class IterationBounds {
 public:
  /// The problem, and what the rules point to, must outlive it.
  IterationBounds(const Problem&, DeviceId, const BoundRules& = {});

  /// By the last op of the forward, if there is a backward, the fullest op of plain training, and these instants. A
  /// budget that is not there is unlimited.
  IterationBound within(std::optional<Bytes> budget, std::span<const OpId> instants = {});

  /// Without these, but for a plan of that time: by the op where it is fullest and ops round it, until it is close.
  IterationBound within(std::optional<Bytes> budget, OpId round, Seconds reached);

  /// The first bound; for few large values also by all ops as instants, and by branch and bound at the three of these
  /// that prove the most: at most `nodes` cuts each. Only where nothing leaves the device, for one micro-batch of at
  /// most 400 ops; the price is that of an instant before it branches.
  IterationBound within_whole_values(Bytes budget, std::size_t nodes = 1000);

  /// Of the first bound, by the instant that decides it; of all where none does, since all fits.
  BoundBends bends(Bytes budget);

 private:
  SnapshotCuts& cuts(OpId, MicroBatch);
  bool are_in_turn() const;
  MicroBatch later_ones() const;
  bool says_something(OpId) const;
  void improve(IterationBound&, Bytes budget, OpId);
  std::pair<Bytes, OpId> one_call_needs() const;

  const Problem& problem_;
  SnapshotModel model_;
  std::optional<SnapshotModel> one_call_;  ///< where its costs are others
  std::vector<OpId> instants_;
  std::map<std::pair<OpId, MicroBatch>, std::unique_ptr<SnapshotCuts>> cuts_;
};

}  // namespace plimsoll
