// The rule `deepcompile.offload_activation`. Source: DeepSpeed, deepspeed/compile/passes/offload_activation.py of the
// commit 17b0aff (passes offload_activation_floor and offload_activation) and deepspeed/compile/partitioner.py (casts
// and gathers of parameters run again, all else is saved).

#include <algorithm>
#include <utility>

#include "strategies/models/op_sequence.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/frameworks/framework_rules.h"

namespace plimsoll {
namespace {

/// Smaller values stay. Its MIN_OFFLOAD_SIZE.
constexpr Bytes deepcompile_least_moved{5LL << 20};

bool has_floats(const Tensor& tensor) {
  return tensor.dtype.find("int") == std::string::npos;
}

/// The highest point of the forward when all these are gone after their last reader there.
Bytes forward_floor(const OffloadModel& model, const std::vector<std::uint32_t>& gaps) {
  std::vector<std::int64_t> change(model.positions() + 1, 0);
  for (const std::uint32_t g : gaps) {
    change[model.gaps[g].from + 1] -= model.gaps[g].bytes.count;
    change[model.gaps[g].until] += model.gaps[g].bytes.count;
  }
  std::int64_t away = 0;
  Bytes most;
  for (std::size_t p = 0; p < model.turn; ++p) {
    away += change[p];
    most = std::max(most, model.memory[p] + Bytes{away});
  }
  return most;
}

}  // namespace

RulePolicies deepcompile_offload(const RuleTask& task) {
  const Graph& graph = task.task.problem.graph;
  OpPolicy policy(graph.ops.size(), OpChoice::save);
  const std::vector<bool> of_parameters = parameter_side_ops(graph);
  for (std::size_t o = 0; o < policy.size(); ++o) {
    if (of_parameters[o]) policy[o] = OpChoice::recompute;
  }
  policy = with_repeatable_only(graph, std::move(policy));
  if (!task.budget) return std::vector<OpPolicy>{std::move(policy)};
  const TapeOutcome stored = PolicyTapes(task.task, task.model, policy).within({});
  if (const Infeasible* none = std::get_if<Infeasible>(&stored)) return none->reason;
  const std::variant<OffloadModel, std::string> made = offload_model(task.task, &std::get<PlannedTape>(stored).tape);
  if (const std::string* why = std::get_if<std::string>(&made)) return *why;
  const auto& model = std::get<OffloadModel>(made);
  std::vector<std::uint32_t> gaps;
  for (const std::uint32_t g : saved_gaps(model)) {
    const OffloadGap& gap = model.gaps[g];
    if (gap.bytes >= deepcompile_least_moved && has_floats(graph[gap.tensor])) gaps.push_back(g);
  }
  Bytes room = *task.budget - forward_floor(model, gaps);
  std::ranges::stable_sort(gaps,
                           [&](std::uint32_t a, std::uint32_t b) { return model.gaps[a].bytes > model.gaps[b].bytes; });
  std::vector<bool> moved(graph.tensors.size(), false);
  for (const std::uint32_t g : gaps) {
    const OffloadGap& gap = model.gaps[g];
    if (gap.bytes <= room) {
      room -= gap.bytes;
    } else {
      moved[gap.tensor.index] = true;
    }
  }
  for (std::size_t o = 0; o < policy.size(); ++o) {
    if (graph.ops[o].phase != Phase::forward || policy[o] != OpChoice::save) continue;
    if (std::ranges::any_of(graph.ops[o].outputs, [&](TensorId t) { return moved[t.index]; })) {
      policy[o] = OpChoice::offload;
    }
  }
  return std::vector<OpPolicy>{std::move(policy)};
}

}  // namespace plimsoll
