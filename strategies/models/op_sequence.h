#pragma once
// A plan of a graph planner: which ops run, in which order, each saving for its backward or not. Its tape drops every
// value right after its last use before it is made anew.

#include <string_view>
#include <vector>

#include "strategies/api/front.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

struct OpRun {
  OpId op;
  Saving saving = Saving::keep;
  std::uint32_t implementation = 0;  ///< of the op

  friend constexpr bool operator==(OpRun, OpRun) = default;
};

using OpSequence = std::vector<OpRun>;

/// The ops of the part once each, in their order.
OpSequence store_all_ops(const PartTask&);

Tape tape_of_ops(const Graph&, const OpSequence&);
/// That tape with its exact promise.
PlannedTape planned_ops(const PartTask&, const OpSequence&);

struct SequencedTape : PlannedTape {
  OpSequence sequence;
};

/// Plans that do not depend on the budget.
class PlanPool : public FrontOf<SequencedTape> {
 public:
  explicit PlanPool(const PartTask& task) : task_(task) {}

  using FrontOf::add;
  void add(const OpSequence& sequence) { add(SequencedTape{planned_ops(task_, sequence), sequence}); }

 private:
  const PartTask& task_;
};

/// Why this task is not the whole graph with one micro-batch in flight, which graph planners need; else nothing.
std::optional<std::string> not_one_part(const PartTask&);

/// Infeasible for that reason at every budget.
std::vector<TapeOutcome> refused(std::string_view reason, std::span<const std::optional<Bytes>> budgets);

}  // namespace plimsoll
