#pragma once
// Where few large values decide, one price for all bytes proves little. Exact searches at an instant, an integer
// program of several instants, and plans from both (/docs/strategies/rematerialization/snapshot.md).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/bound/branched_cut.h"
#include "strategies/api/front.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/snapshot/instants_plan.h"
#include "strategies/offloading/snapshot/snapshot_plans.h"

namespace plimsoll {

/// Of one micro-batch without copies. Of parts that are not small only programs are asked, and of instants where their
/// own solutions are fullest.
class FewValues {
 public:
  static constexpr std::size_t most_ops = 400, most_ops_of_programs = 2'000;

  /// Nothing where the part has more ops than programs can have, or several micro-batches. The task must outlive it.
  /// `plans`: one an instant, likewise. A part of at most `small` ops is small.
  static std::unique_ptr<FewValues> make(const PartTask&, std::vector<SnapshotPlans*> plans, std::int64_t effort,
                                         std::size_t small = most_ops);

  /// The fastest plan for all levels of memory up to the budget that is faster than `known`, which may be null; else
  /// null. So more memory is never slower.
  const PlannedTape* faster(Bytes budget, const PlannedTape* known);
  /// What no schedule within the budget can beat, where there is a plan. Searches are of levels of memory: what is
  /// proven of more memory holds of less.
  Seconds bound(Bytes budget);
  /// The least budget for which there is a plan, of one that was too little.
  std::optional<Bytes> least() const { return least_; }

 private:
  /// What an instant proves, and its op.
  struct Proven {
    Seconds extra;
    std::uint32_t op = 0;
  };
  struct Answer {
    Seconds bound;                    ///< no schedule is faster
    std::optional<PlannedTape> plan;  ///< the fastest that is known, if any
    enum State : std::uint8_t { begun, branched, solved } state = begun;
  };

  FewValues(const PartTask&, std::vector<SnapshotPlans*>, std::int64_t effort, bool is_small);

  Seconds bound_of_instants(Bytes budget) const;
  SnapshotCuts& cuts(std::uint32_t op);
  Bytes level(std::int64_t k, std::int64_t count) const;
  std::optional<Bytes> level_above(Bytes budget, std::int64_t count) const;
  static void heed_one_call(Answer&);
  Answer& begun(Bytes budget);
  Answer& branched(Bytes budget);
  Answer& solved(Bytes budget);
  const PlannedTape* others(Bytes budget);
  std::vector<Proven> instants(Bytes budget);
  void branch(Answer&, Bytes budget, std::span<const Proven>);
  InstantsPlan asked(Answer&, Bytes budget, const InstantsProgram&, int nodes) const;
  void ask_programs(Answer&, Bytes budget, std::span<const Proven>);
  void ask_chosen(Answer&, Bytes budget, std::span<const Proven>);
  std::optional<OpId> fullest_between(std::span<const OpId> instants, const OpSequence&, Bytes budget) const;
  bool is_close(const Answer&) const;
  bool is_as_fast_as_plain(const PlannedTape&) const;

  const PartTask& task_;
  std::vector<SnapshotPlans*> plans_;
  std::int64_t effort_;
  bool is_small_;
  Bytes peak_;
  SnapshotModel model_;
  std::map<std::uint32_t, std::uint32_t> number_;                // by op of the graph: that of the plans' model
  std::map<std::uint32_t, std::unique_ptr<SnapshotCuts>> cuts_;  // by op
  std::map<Bytes, Answer> answers_;
  std::optional<Front> others_;
  std::optional<Bytes> least_;
};

}  // namespace plimsoll
