// Collectives: every rank contributes once before any rank has the result.

#include "sim/core/judge.h"

#include <algorithm>

namespace plimsoll {

void Judge::judge_collective(StepId s) {
  const CollectiveId id = schedule_[s].collective;
  if (last_of_collective_[id.index] != s) return;
  const Collective& collective = schedule_.collectives[id.index];
  Held sum;
  for (const BufferId b : collective.inputs) {
    const Held& input = held_[b.index];
    sum.tensors = input.tensors;
    for (const auto& part : input.parts) {
      if (!sum.parts.insert(part).second) report(Rule::repeated, s, b, "sums a contribution twice, from");
    }
  }
  for (const BufferId b : collective.outputs) {
    std::vector<StepId> makers;
    for (const StepId c : steps_of_collective_[id.index]) {
      for (const Slice& slice : {schedule_[c].writes, schedule_[c].allocates}) {
        const auto list = schedule_.buffers_in(slice);
        if (std::ranges::find(list, b) != list.end()) makers.push_back(c);
      }
    }
    if (makers.empty()) report(Rule::collective, s, b, "ends a collective in which nobody fills");
    Held& held = fill(s, b, sum.tensors);
    held.makers = makers;
    held.parts = sum.parts;
    held.from = id;
  }
}

}  // namespace plimsoll
