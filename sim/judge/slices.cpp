// Slices of sequences: what attention reads of the slices before, and adds to.

#include <algorithm>

#include "sim/core/slices.h"
#include "sim/judge/judge.h"

namespace plimsoll {

void Judge::judge_slices(StepId s, const Op& op) {
  const std::optional<TensorId> attended = attended_by(graph_, op);
  if (!attended) return;
  const Step& step = schedule_[s];
  const std::uint32_t first = step.micro_batch - step.micro_batch % slices_;
  for (std::uint32_t earlier = first; earlier < step.micro_batch; ++earlier) judge_input(s, *attended, earlier);
  if (!is_backward(op.phase)) return;
  // What later slices add to its gradients must be in there.
  const std::uint32_t end = std::min(first + slices_, schedule_.micro_batches);
  for (std::uint32_t later = step.micro_batch + 1; later < end; ++later) {
    if (ran_[first_run_[step.op.index] + std::size_t{later} * schedule_.replicas + step.replica] > 0) continue;
    report(Rule::incomplete, s,
           text(s) + " comes before that of micro-batch " + std::to_string(later) +
               ", a later slice of its sequence, which adds to its gradients");
  }
  for (const BufferId b : given_) {
    if (schedule_[b].tensor != *attended || !belongs(schedule_[b], step)) continue;
    for (const StepId reader : held_in(b).readers) {
      if (ordered(reader, s) || schedule_[reader].micro_batch == step.micro_batch) continue;
      report(Rule::not_ordered, s, b,
             "reads, without waiting for step " + std::to_string(reader.index) + " of a later slice that adds to it,");
    }
  }
}

}  // namespace plimsoll
