#pragma once
// Plans of graphs of any size that keep each value of an instant in the way that a cut chooses: as it is, packed, on
// the host, or not, and made again; and what no plan of that class can beat.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/bound/packed_cuts.h"
#include "strategies/compression/kept_choice.h"
#include "strategies/models/op_model.h"
#include "strategies/offloading/activations/offload_model.h"

namespace plimsoll {

struct CutPlansRules {
  std::span<const Codec> codecs;  ///< beside signs of what ReLUs read
  std::vector<double> errors;     ///< that a plan may have, ascending; the last is the largest
  bool recomputes = true, offloads = true;
};

class CutPlans {
 public:
  /// The part must be the only one, of one micro-batch; the model is that of plain training.
  CutPlans(const PartTask&, const OffloadModel& plain, CutPlansRules);

  /// The fastest of the plans for all levels of memory up to the budget and all errors, if it is faster than `than`;
  /// else null. So more memory, or error, is never slower.
  const PlannedTape* best(Bytes budget, std::optional<Seconds> than);

  /// What no plan with so much memory can beat; infinite where none fits.
  Seconds bound(Bytes budget);
  /// The same of plans that pack nothing.
  Seconds bound_unpacked(Bytes budget);

  /// Levels of memory, of many some.
  std::vector<Bytes> budgets() const;

 private:
  /// A bound of schedules with copies, or without.
  struct Cuts {
    SnapshotModel model;
    std::unique_ptr<PackedCuts> packed;  ///< with all forms and the errors that they are likely to make
    std::unique_ptr<PackedCuts> proven;  ///< where these are not the least that they make: with these; else null
    std::unique_ptr<PackedCuts> exact;   ///< with values as they are
    std::map<std::pair<Bytes, double>, PackedBound> asked;
    std::map<std::pair<Bytes, double>, Seconds> times;
    std::map<Bytes, Seconds> exact_times;
  };
  /// Plans that copy, or do not, within a level of memory and one of the errors.
  struct Question {
    bool copies = false;
    std::size_t error = 0;
    Bytes level;
    friend auto operator<=>(const Question&, const Question&) = default;
  };
  struct Answer {
    std::optional<KeptChoice> choice;  ///< the fastest that there is room for
    bool is_planned = false;
    std::optional<PlannedTape> plan = {};
    bool has_none() const { return is_planned && !plan; }
  };

  std::unique_ptr<Cuts> cuts_of(BytesPerSecond out) const;
  Cuts& cuts(bool copies) const { return copies ? *moving_ : *still_; }
  static const PackedBound& packed_bound(Cuts&, Bytes budget, double square);
  static Seconds time_bound(Cuts&, Bytes budget, double square);
  /// Whether that bound is at least so much.
  static bool is_slower(Cuts&, Bytes budget, double square, std::optional<Seconds> than);
  static Seconds exact_bound(Cuts&, Bytes budget);
  static std::optional<KeptChoice> choice(Cuts&, Bytes budget, double square);

  std::optional<Tape> tape_of(const PackedCuts&, const KeptChoice&) const;
  double error_of(const Tape&) const;
  const PlannedTape* answer(const Question&, std::optional<Seconds> than);
  std::optional<PlannedTape> without_copies(const Question&, KeptChoice);
  std::optional<PlannedTape> with_copies(const Question&, KeptChoice, double square, int trials);
  void search(bool copies, Bytes budget, const PlannedTape*& best, std::optional<Seconds> than);

  const PartTask& task_;
  const OffloadModel& plain_;
  CutPlansRules rules_;
  OpModel ops_;
  std::vector<Codec> codecs_;                           // those, and signs
  std::uint32_t instant_ = 0;                           // op of that model
  std::vector<std::optional<std::uint32_t>> model_op_;  // by op of the graph
  std::unique_ptr<Cuts> still_, moving_;                // without copies; with them, or null
  bool all_leaves_ = false;                             // at once: copies take no time
  std::int64_t step_ = 1;                               // between levels of memory, in bytes
  std::map<Question, Answer> answers_;
};

}  // namespace plimsoll
