#pragma once
// What to keep and how, and what to run again, at one instant, at prices for a kept byte and for error: a smallest cut.
// The bound on the time of schedules that also pack, within a budget and an error (sim/bound/README.md).

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/bound/kept_ways.h"
#include "sim/bound/max_flow.h"
#include "sim/bound/snapshot_model.h"

namespace plimsoll {

/// Of the rest of the iteration, from the instant on.
struct PackedCut {
  double memory_price = 0;          ///< seconds a byte, at which it is a best one
  double error_price = 0;           ///< seconds for a squared error of 1
  double value = 0;                 ///< at most the cost of a best one there
  std::vector<bool> runs;           ///< by op, but for the instant's: a run of it begins
  std::vector<bool> again;          ///< by op: of those, what had run before
  std::vector<bool> kept;           ///< by value: it is live at the instant, beside what Instant::bytes counts
  std::vector<std::uint32_t> ways;  ///< by value that is kept: of KeptWays
  Bytes kept_bytes;
  Seconds extra;      ///< what runs again, packs and unpacks
  double weight = 0;  ///< what is priced: kept bytes, less what can leave beside, as of SnapshotCut
  double square = 0;  ///< of errors
};

/// What no schedule with so much memory and so little error can beat because of one instant.
struct PackedBound {
  Seconds extra;                             ///< beside what each op takes once
  double memory_price = 0, error_price = 0;  ///< of which it is the bound
  std::optional<Bytes> needs;                ///< set: no schedule fits; the least budget that this instant leaves
  std::vector<std::pair<std::size_t, double>> mix;  ///< cuts, by number, whose mean is at the limits, and their shares
};

class PackedCuts {
 public:
  /// The model must outlive it.
  PackedCuts(const SnapshotModel&, Instant, KeptWays);

  const SnapshotModel& model() const { return model_; }
  const Instant& instant() const { return instant_; }
  const KeptWays& ways() const { return ways_; }

  /// Those that may be kept at the instant, beside what Instant::bytes counts.
  const std::vector<std::uint32_t>& values() const { return values_; }

  /// What may be kept within a budget, in what PackedCut::weight counts.
  double room(Bytes budget) const { return static_cast<double>((budget - instant_.bytes).count) + could_leave_; }

  /// A best one at these prices, or at the dearest that bounds ask for; the number of it.
  std::size_t at(double memory_price, double error_price);
  /// All that were asked for so far.
  const PackedCut& operator[](std::size_t cut) const { return cuts_[cut]; }
  std::size_t size() const { return cuts_.size(); }

  /// What the cuts so far say of the extra time: less than the bound.
  Seconds known(Bytes budget, double square) const;

  /// `square`: of the whole error, at most.
  PackedBound bound(Bytes budget, double square);

  /// Which way costs the least at these prices.
  std::uint32_t best_way(std::uint32_t value, double memory_price, double error_price) const;

 private:
  /// Edges of an op, capacity = seconds + price * bytes.
  struct OfOp {
    std::size_t edge;
    double seconds, bytes;
  };
  /// Edges of a value: for being there at all, and for being there as it is, beside that.
  struct OfValue {
    std::uint32_t value;
    std::optional<std::size_t> any, whole;
  };

  double out() const { return model_.rules.out.value; }
  double dearest() const;  ///< of a byte
  double cost(const KeptWay&, double memory_price, double error_price, bool bytes_only = false) const;
  void build();
  PackedCut cut(double memory_price, double error_price, bool bytes_only);
  PackedCut counted(const std::vector<bool>& source_side, double memory_price, double error_price) const;

  const SnapshotModel& model_;
  Instant instant_;
  KeptWays ways_;
  FlowGraph network_{0};
  std::vector<std::uint32_t> node_of_;  ///< by op
  std::vector<OfOp> of_ops_;
  std::vector<OfValue> of_values_;
  double again_ = 0, keep_all_ = 0, could_leave_ = 0;  ///< as of SnapshotCuts
  std::vector<std::uint32_t> values_;
  std::vector<PackedCut> cuts_;
};

}  // namespace plimsoll
