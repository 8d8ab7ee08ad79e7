#pragma once
// What to keep and what to run again, at one instant and at one price for a kept byte: a smallest cut. All optimal
// trades of bytes for time, and the bound on time that follows for a budget (sim/bound/README.md).

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/bound/cuts_between.h"
#include "sim/bound/max_flow.h"
#include "sim/bound/snapshot_model.h"

namespace plimsoll {

/// Of the rest of the iteration, from the instant on.
struct SnapshotCut {
  double price = 0;         ///< seconds a byte, at which it is a best one
  double value = 0;         ///< at most the cost of a best one there: seconds, and price times weight
  std::vector<bool> runs;   ///< by op, but for the instant's: a run of it begins
  std::vector<bool> again;  ///< by op: of those, what had run before
  std::vector<bool> kept;   ///< by value: it is live at the instant, beside what Instant::bytes counts
  Bytes kept_bytes;
  Seconds extra;      ///< what runs again
  double weight = 0;  ///< what is priced: kept bytes, and those that could leave while ops beside run that
                      ///< have not run before
};

/// What no schedule can beat because of one instant.
struct InstantBound {
  Seconds extra;                      ///< beside what each op takes once; 0 where the budget does not matter
  double price = 0;                   ///< of which it is the bound, in seconds a byte
  std::optional<Bytes> needs;         ///< set: no schedule fits; the least budget that this instant leaves
  std::optional<SnapshotCut> over;    ///< the best ones around the budget: the nearest that keeps too much, if any,
  std::optional<SnapshotCut> within;  ///< and the nearest that does not
};

class SnapshotCuts {
 public:
  /// The model must outlive it. Ops of no time beside the instant cost nothing.
  SnapshotCuts(const SnapshotModel&, Instant);

  const Instant& instant() const { return instant_; }

  /// A best one at a price of at least 0; of several the one that runs the least.
  SnapshotCut at(double price);

  /// From now on all cuts keep the value and pay for it, or do without it; unset: either. Not with copies.
  void decide(std::uint32_t value, std::optional<bool> kept);
  /// A best one of those that heed all that is decided; nothing where there is none. Neither `bound` nor `front` heeds
  /// it.
  std::optional<SnapshotCut> decided_at(double price);

  /// With this many bytes of the device. Where values may leave it (BoundRules::out), the time in which they can is
  /// part of the weight and of what it may come to.
  InstantBound bound(Bytes budget);
  /// The least with which that cut costs no more than its own time.
  Bytes fits(const SnapshotCut&) const;

  /// All that are best at some price, as values do not leave the device: kept bytes fall, time rises.
  std::vector<SnapshotCut> front();

 private:
  /// An edge of the network that may be cut.
  struct Priced {
    std::size_t edge;
    double seconds, bytes;
    std::optional<std::uint32_t> value;  ///< that it keeps
  };

  /// Of the best ones those found so far: weights fall from one to the next.
  struct Step {
    SnapshotCut cut;
    std::optional<CutsBetween> before = {};  ///< between the one before and this
    bool is_next = false;                    ///< no better one lies between
    bool is_dear = false;                    ///< its price is more than copies take
    std::optional<double> price = {};        ///< of both; set: `value` is known
    double value = 0;                        ///< as that of a cut
  };
  enum class Proof { none, value };

  double out() const { return model_.rules.out.value; }
  void build();
  bool is_decided(std::uint32_t value, bool kept) const;
  SnapshotCut counted(const std::vector<bool>& source_side, double price) const;
  SnapshotCut found(const std::vector<bool>& source_side, double price) const;
  void begin();
  void find_least_bytes();
  bool splits(std::size_t step, Proof);

  const SnapshotModel& model_;
  Instant instant_;
  FlowGraph network_{0};
  std::vector<std::uint32_t> node_of_;  ///< by op
  std::vector<Priced> priced_;
  double again_ = 0, keep_all_ = 0;           ///< seconds of all that may run again; weight where nothing does
  double could_leave_ = 0;                    ///< bytes, before the instant, where all that may run before it does
  std::vector<std::optional<bool>> decided_;  ///< by value; empty: none is
  std::uint32_t nodes_ = 0;                   ///< of the network
  std::vector<PricedArc> arcs_;
  std::vector<Step> steps_;            ///< the first runs nothing again
  std::optional<CutsBetween> behind_;  ///< what lies behind the last one
};

}  // namespace plimsoll
