#pragma once
// Plans of recomputation that an instant's cuts lead to: what runs again, as a sequence that fits a budget.

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/snapshot/segment_plans.h"
#include "strategies/offloading/snapshot/sequence_memory.h"
#include "strategies/offloading/snapshot/snapshot_cuts.h"

namespace plimsoll {

/// Ops of the model at whose start it is worth to decide what is kept: where plain training is fullest, and the last
/// forward, with which the backward begins.
std::vector<std::uint32_t> snapshot_instants(const PartTask&);

/// The part in an order of ops, and one of these as an instant.
struct OrderedPart {
  Partition partition;
  std::uint32_t instant = 0;
};
/// An order in which more of the best trades fit as they are, at the op near these instants that proves the most of
/// half of plain training's memory; nothing where none was found, or where all of them fit in the given one.
std::optional<OrderedPart> ordered_part(const PartTask&, std::span<const std::uint32_t> instants);

class SnapshotPlans {
 public:
  /// `instant`: an op of the model.
  SnapshotPlans(const PartTask&, std::uint32_t instant, std::int64_t effort);

  const OpModel& model() const { return model_; }
  bool is_small() const { return model_.ops.size() <= 1000; }  ///< it takes more tries
  /// It plans in segments, too.
  bool is_middling() const { return model_.ops.size() <= 3000; }

  /// What runs again where the instant may keep so many bytes: that of the nearest best trade that keeps no more, less
  /// what else there is room for. With groups of so many pieces, 0 being none, pieces that are not kept lie apart.
  Again again_within(Bytes kept, std::size_t group = 0) const;
  /// Runs it, each op right before what first needs it. Nothing where ops that overwrite each other's inputs stand
  /// against that.
  std::optional<OpSequence> sequence_of(const Again&) const;

  /// What is left of it within so much memory: more values are made anew until it fits, and repeated runs that it does
  /// not need are left out. Nothing where it does not come to fit, or takes longer than `most` on the way.
  std::optional<SequencedTape> fitting(const OpSequence&, Bytes budget,
                                       Seconds most = Seconds{std::numeric_limits<double>::infinity()}) const;

  /// The fastest of the plans for all levels of memory up to the budget; null where none fits. So more memory is never
  /// slower. Also null where none is faster than what is known.
  const SequencedTape* best(std::optional<Bytes> budget,
                            Seconds known = Seconds{std::numeric_limits<double>::infinity()});
  /// The least budget for which there is a plan, or `most` where it is no less.
  Bytes least(Bytes most);
  /// From there on trades of the front are plans as they are.
  Bytes fits_from() const { return fits_from_; }
  /// No schedule without copies fits less; no schedule in which only activations are copied does.
  Bytes floor() const { return floor_; }
  Bytes floor_with_copies() const { return floor_with_copies_; }
  /// An op that would have to run again and whose inputs cannot be made again, since later ops overwrite them.
  std::optional<OpId> stuck() const;
  /// What no schedule without copies can beat.
  Seconds bound(Bytes budget) const { return front_.bound(budget); }
  /// Plans in segments are those of another instant.
  void leave_segments() { has_segments_ = false; }
  /// What others prove: no schedule without copies is faster. Plans are then not looked for where none is needed.
  void heed(std::function<Seconds(Bytes)> bound) { others_ = std::move(bound); }
  std::uint32_t instant() const { return instant_; }

  const std::vector<SnapshotBend>& bends() const { return front_.bends(); }
  /// Beside kept bytes, at the instant.
  Bytes beside() const { return beside_; }
  Bytes plain_peak() const { return plain_.peak; }
  /// Work that comes before the instant where no op repeats.
  Seconds time_before() const;
  /// Of one micro-batch where these run again.
  Seconds work_with(const Again&) const;
  /// No more than that of what the instant may keep so many bytes of.
  Seconds least_work_within(Bytes kept) const { return front_.once() + front_.again(beside_ + kept); }

  /// At which the best plan changes, or, of a large part, the bends of the bound that are plans as they are.
  std::vector<Bytes> budgets();

 private:
  /// The fastest found within so much memory.
  std::optional<SequencedTape> within(Bytes budget);
  std::optional<SequencedTape> in_segments(Bytes budget);
  const SequencedTape* at_level(std::size_t level);
  SequencedTape plan_of(const OpSequence&) const;
  std::optional<SequenceMemory> repaired(OpSequence, Bytes budget, double share, Seconds most) const;
  SequencedTape shortened(SequenceMemory& fits, Bytes budget) const;
  std::vector<std::vector<std::uint32_t>> parts_of(const Again& less, const Again& more) const;
  double seconds_of(const std::vector<std::uint32_t>& part) const;
  std::vector<std::size_t> order_of(const std::vector<std::vector<std::uint32_t>>& parts, std::size_t group) const;
  void keep_pieces(KeptBytes&, Bytes kept, std::size_t bend, std::size_t group) const;
  void keep_piece(KeptBytes&, Bytes kept, const std::vector<std::uint32_t>& piece) const;
  void keep_worthiest(KeptBytes&, Bytes kept, std::size_t bend, std::size_t trades) const;
  void find_levels();
  bool is_enough(Seconds found, Bytes budget) const;

  const PartTask& task_;
  std::int64_t effort_;
  OpModel model_;
  std::uint32_t instant_;
  SnapshotFront front_;
  std::vector<std::vector<std::vector<std::uint32_t>>> parts_;  // by bend: what it runs again and the next does not
  Bytes beside_, fits_from_, floor_, floor_with_copies_;
  std::vector<Bytes> levels_;                                    // of memory, ascending
  std::map<std::size_t, std::optional<SequencedTape>> planned_;  // by level
  SequencedTape plain_;
  bool has_segments_ = true;
  std::optional<SegmentPlans> segments_;  // made when they are first asked for
  std::function<Seconds(Bytes)> others_;
};

}  // namespace plimsoll
