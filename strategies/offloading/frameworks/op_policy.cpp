#include "strategies/offloading/frameworks/op_policy.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "sim/core/expects.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/recompute_order.h"

namespace plimsoll {
namespace {

Evicted evicted_by(const OpModel& model, const OpPolicy& policy) {
  Evicted evicted(model.values.size(), false);
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    const std::optional<std::uint32_t> maker = model.values[v].maker;
    evicted[v] = maker && policy[model.ops[*maker].id.index] == OpChoice::recompute;
  }
  return evicted;
}

/// By tensor: whether an op that the policy offloads makes it.
std::vector<bool> offloaded_tensors(const Graph& graph, const OpPolicy& policy) {
  std::vector<bool> offloaded(graph.tensors.size(), false);
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (policy[o] != OpChoice::offload || graph.ops[o].phase != Phase::forward) continue;
    for (const TensorId t : graph.ops[o].outputs) offloaded[t.index] = true;
  }
  return offloaded;
}

}  // namespace

PolicyTapes::PolicyTapes(const PartTask& task, const OpModel& model, const OpPolicy& policy) : task_(task) {
  EXPECTS(policy.size() == task.problem.graph.ops.size());
  const std::optional<OpSequence> sequence = recompute_order(model, evicted_by(model, policy));
  if (!sequence) {
    why_none_ = "ops that overwrite each other's inputs stand against what it runs again";
    return;
  }
  plan_ = planned_ops(task, *sequence);
  const std::vector<bool> offloaded = offloaded_tensors(task.problem.graph, policy);
  if (std::ranges::count(offloaded, true) == 0) return;
  std::variant<OffloadModel, std::string> made = offload_model(task, &plan_.tape);
  if (std::string* why = std::get_if<std::string>(&made)) {
    why_none_ = std::move(*why);
    return;
  }
  copies_ = std::get<OffloadModel>(std::move(made));
  if (!copies_->has_host) {
    why_none_ = no_host(task);
    return;
  }
  for (const std::uint32_t g : saved_gaps(*copies_)) {
    OffloadGap& gap = copies_->gaps[g];
    if (!offloaded[gap.tensor.index] || !gap.holds_positions()) continue;
    gap.made = gap.from;  // leaves after its last reader of the forward: none waits for another's use
    items_.push_back({g, {}, gap.bytes});
  }
  if (std::optional<PlannedTape> free = placed(largest_bytes)) {
    plan_ = *std::move(free);
  } else {
    why_none_ = "the host has too little memory";
  }
}

std::optional<PlannedTape> PolicyTapes::placed(Bytes budget) const {
  const std::optional<PlacedCopies> copies = placed_items(*copies_, items_, budget);
  if (!copies) return std::nullopt;
  std::optional<PlannedTape> plan = planned_moves(task_, *copies_, copies->moves);
  return plan && plan->peak <= budget ? std::move(plan) : std::nullopt;
}

/// What is there while all that may leave has left: no placement needs less.
Bytes PolicyTapes::floor() const {
  std::vector<std::int64_t> change(copies_->positions() + 1, 0);
  for (const OffloadItem& item : items_) {
    const OffloadGap& gap = copies_->gaps[item.gap];
    change[gap.from + 1] -= item.bytes.count;
    change[gap.until] += item.bytes.count;
  }
  std::int64_t away = 0;
  Bytes most;
  for (std::size_t p = 0; p < copies_->positions(); ++p) {
    away += change[p];
    most = std::max(most, copies_->memory[p] + Bytes{away});
  }
  return most;
}

/// By halving: within a thousandth of what lies between the floor and the plan without a limit.
Bytes PolicyTapes::least() const {
  constexpr int halvings = 10;
  if (items_.empty()) return plan_.peak;
  Bytes fits = plan_.peak, too_little = floor();
  if (placed(too_little)) return too_little;
  for (int k = 0; k < halvings && too_little + Bytes{1} < fits; ++k) {
    const Bytes middle{too_little.count + (fits - too_little).count / 2};
    (placed(middle) ? fits : too_little) = middle;
  }
  return fits;
}

TapeOutcome PolicyTapes::within(std::optional<Bytes> budget) const {
  if (!why_none_.empty()) return Infeasible{why_none_, std::nullopt};
  if (!budget || plan_.peak <= *budget) return plan_;
  if (!items_.empty()) {
    if (std::optional<PlannedTape> plan = placed(*budget)) return *std::move(plan);
  }
  return Infeasible{"what it saves stays on the device", least(), items_.empty()};
}

std::vector<Bytes> PolicyTapes::budgets() const {
  if (!why_none_.empty()) return {};
  return {least(), plan_.peak};
}

}  // namespace plimsoll
