#include "strategies/offloading/snapshot/instants_plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "sim/core/tolerance.h"

namespace plimsoll {
namespace {

/// Each run saves what is only saved if somebody reads it before the op's next run.
OpSequence saving_runs(const OpModel& model, const std::vector<std::uint32_t>& order) {
  std::map<std::uint32_t, std::uint32_t> number;
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) number[model.ops[o].id.index] = o;
  std::vector<bool> is_wanted(model.ops.size(), false);
  OpSequence sequence;
  for (std::size_t k = order.size(); k-- > 0;) {
    const auto at = number.find(order[k]);
    if (at == number.end()) continue;
    const ModelOp& op = model.ops[at->second];
    const bool saves = op.ways.size() == 1 || is_wanted[at->second];
    is_wanted[at->second] = false;
    sequence.push_back({op.id, op.ways[saves ? 0 : 1].saving});
    for (const std::uint32_t v : op.reads) {
      const std::optional<std::uint32_t> maker = model.values[v].maker;
      if (!maker || model.ops[*maker].ways.size() == 1) continue;
      const std::vector<std::uint32_t>& always = model.ops[*maker].ways[1].makes;
      if (std::ranges::find(always, v) == always.end()) is_wanted[*maker] = true;
    }
  }
  std::ranges::reverse(sequence);
  return sequence;
}

}  // namespace

InstantsPlan instants_plan(const InstantsProgram& program, Bytes budget, Seconds known, const OpModel& model,
                           const MilpLimits& limits) {
  constexpr Seconds nothing_fits{std::numeric_limits<double>::infinity()};
  const Seconds less = (1 - model_tolerance) * known;
  const std::optional<LinearProgram> within = program.within(budget, less);
  if (!within) return {.extra = nothing_fits, .sequence = {}, .end = MilpResult::End::infeasible};
  const MilpResult result = solve_milp(*within, {}, limits);
  if (result.end == MilpResult::End::infeasible) return {.extra = less, .sequence = {}, .end = result.end};
  InstantsPlan plan{.extra = program.extra(result.bound), .sequence = {}, .end = result.end};
  if (!result.values.empty()) plan.sequence = saving_runs(model, program.order_of(result.values));
  return plan;
}

}  // namespace plimsoll
