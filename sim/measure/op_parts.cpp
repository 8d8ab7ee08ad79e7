#include "sim/measure/op_parts.h"

#include <algorithm>
#include <array>
#include <string>

#include "sim/core/collective_op.h"
#include "sim/core/op_attribute.h"
#include "sim/core/scaling.h"

namespace plimsoll {
namespace {

/// A forward op in the backward: recompute_ops has put it there.
bool is_second_run(const Op& op) {
  if (!is_backward(op.phase)) return false;
  const auto of = attribute_of(op, "of");
  return of && op.name == "second " + std::string(*of);
}

Seconds at_peak(const std::optional<Flops>& flops, const Graph& graph, const Op& op, const Device& device) {
  const std::string_view own = computed_in(graph, op);
  const std::optional<FlopsPerSecond> peak = peak_of(device, own.empty() ? graph.source.dtype : own);
  return flops && peak ? *flops / *peak : Seconds{};
}

/// Of an op that is no stage. `alternative`: its other implementation, else null.
OpParts parts_of(const Graph& graph, const Op& op, const Alternative* alternative, const Device& device) {
  if (collective_of(op) || op.is_view || is_pinned_to_host(op)) return {};
  if (is_second_run(op)) {
    return {.ideal = {}, .launches = {}, .again = duration(graph, op, device, Saving::keep).value_or(Seconds{})};
  }
  OpParts made;
  made.ideal = at_peak(alternative ? alternative->flops : op.flops, graph, op, device);
  const bool is_roofline = timed_by(graph, op, device) == TimedBy::roofline;
  const bool is_launched = op.flops.value_or(Flops{}).count > 0 || op.bytes_moved.value_or(Bytes{}) > Bytes{};
  if (is_roofline && is_launched) made.launches = (alternative ? 1 : op.launches) * device.launch_overhead;
  return made;
}

}  // namespace

bool saves_for_backward(const Schedule& schedule, const Step& step, const Op& op) {
  if (op.saved.empty()) return true;
  return std::ranges::any_of(schedule.buffers_in(step.allocates), [&](BufferId b) {
    return std::ranges::find(op.saved, schedule[b].tensor) != op.saved.end();
  });
}

PartsOfOps::PartsOfOps(const Problem& problem)
    : problem_(problem), known_(problem.graph.ops.size()), exchanges_(problem.graph.ops.size()) {
  if (problem.of_ops && problem.index) find_stages();
}

const OpParts& PartsOfOps::of(OpId id, std::uint32_t implementation, DeviceId on) {
  std::optional<Known>& known = known_[id.index];
  if (known && known->implementation == implementation && known->on == on) return known->parts;
  const Device& device = problem_.platform[on];
  const auto stage = stages_.find(id);
  const Op& op = problem_.graph[id];
  const Alternative* alternative = implementation > 0 ? &op.alternatives[implementation - 1] : nullptr;
  known = {
      implementation, on,
      stage != stages_.end() ? of_stage(stage->second, device) : parts_of(problem_.graph, op, alternative, device)};
  return known->parts;
}

const std::vector<ExchangeShare>& PartsOfOps::exchanges(OpId id) {
  std::optional<std::vector<ExchangeShare>>& known = exchanges_[id.index];
  if (!known) known = exchanges_within(problem_.graph[id]);
  return *known;
}

OpParts PartsOfOps::of_stage(const OfStage& stage, const Device& device) const {
  OpParts sum;
  for (const OpId id : stage.ops) {
    const OpParts each = parts_of(*problem_.of_ops, (*problem_.of_ops)[id], nullptr, device);
    sum.ideal += stage.share * each.ideal;
    sum.launches += stage.share * each.launches;
    sum.again += stage.share * each.again;
  }
  return sum;
}

/// The stages are those of the forward, in its order, as as_chain counts them.
void PartsOfOps::find_stages() {
  const Graph& ops = *problem_.of_ops;
  std::map<std::uint32_t, std::size_t> number;
  for (const Op& op : ops.ops) {
    if (op.phase == Phase::forward && !runs_beside(op)) number.try_emplace(op.stage, number.size());
  }
  std::vector<std::array<std::vector<OpId>, 2>> of_stage(number.size());
  for (std::size_t o = 0; o < ops.ops.size(); ++o) {
    const Op& op = ops.ops[o];
    const auto stage = number.find(op.stage);
    if (op.phase == Phase::update || stage == number.end()) continue;
    of_stage[stage->second][is_backward(op.phase) ? 1 : 0].push_back(id_at<OpId>(o));
  }
  const ChainGraph& index = *problem_.index;
  for (std::size_t i = 0; i < of_stage.size() && i < index.forward.size(); ++i) {
    stages_[index.forward[i]] = {of_stage[i][0]};
    if (index.backward[i] == no_op) continue;
    const bool is_split = !index.weight.empty() && index.weight[i] != no_op;
    double share = 1;
    if (is_split) {
      const Seconds input = duration_on(problem_, index.backward[i], DeviceId{0}, Saving::keep),
                    weight = duration_on(problem_, index.weight[i], DeviceId{0}, Saving::keep);
      if (input + weight > Seconds{}) share = input / (input + weight);
      stages_[index.weight[i]] = {of_stage[i][1], 1 - share};
    }
    stages_[index.backward[i]] = {of_stage[i][1], share};
  }
}

}  // namespace plimsoll
