#include "sim/bound/iteration_bound.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/core/expects.h"
#include "sim/core/places.h"
#include "sim/core/slices.h"

namespace plimsoll {
namespace {

constexpr std::int64_t farthest = 32;  // instants that are tried round one, in ops
constexpr double close_enough = 1e-4;  // of a plan's time

/// Where the backward may be one call of autograd, which takes other times and workspaces.
bool has_one_call(const Problem& problem) {
  return std::ranges::any_of(problem.graph.ops, [](const Op& op) {
    return op.released_share != 1 || op.released_workspace || op.released_accumulate_workspace;
  });
}

BoundRules stage_by_stage(BoundRules rules) {
  rules.one_call = false;
  return rules;
}

/// Of all micro-batches, each op once.
Seconds all_once(const SnapshotModel& model) {
  const std::uint32_t micro_batches = model.problem->micro_batches;
  return micro_batches == 1 ? model.base : micro_batches * (model.base - model.updates) + model.updates;
}

}  // namespace

BytesPerSecond ways_out(const Platform& platform, DeviceId device) {
  const MemoryId own = platform[device].memory;
  std::optional<LinkId> counted;
  double sum = 0;
  for (const MemoryId place : {place::host, place::disk}) {
    const std::optional<MemoryId> there = memory_at(platform, device, place);
    const std::optional<Route> route = there && *there != own ? route_between(platform, own, *there) : std::nullopt;
    if (!route || (!route->links.empty() && route->links.front().link == counted)) continue;
    if (route->links.empty()) return unlimited_bandwidth;
    counted = route->links.front().link;
    sum += bandwidth_of(platform[*counted], route->links.front().down).value;
  }
  return {sum};
}

OpId fullest_op(const SnapshotModel& model) {
  const Graph& graph = model.problem->graph;
  std::vector<Bytes> begins(graph.ops.size()), overwritten(graph.ops.size()), ends(graph.ops.size());
  for (const SnapshotValue& value : model.values) {
    if (!value.maker && value.readers.empty()) continue;
    const std::uint32_t first = value.maker ? *value.maker : value.readers.front();
    const std::uint32_t last = value.readers.empty() ? first : value.readers.back();
    const auto is_its = [&](TensorId t) { return graph[t].storage == graph[value.tensor].storage; };
    const bool in_place = last != first && std::ranges::any_of(graph.ops[last].mutates, is_its);
    begins[first] += value.bytes;
    (in_place ? overwritten : ends)[last] += value.bytes;
  }
  std::vector<bool> is_there(graph.storages, false);
  Bytes live, most{-1};
  OpId fullest{};
  for (std::uint32_t o = 0; o < graph.ops.size(); ++o) {
    live += begins[o] - overwritten[o];
    for (const TensorId t : graph.ops[o].outputs) {
      if (graph[t].kind != TensorKind::parameter_gradient || model.rules.stay != Stays::all) continue;
      if (is_there[graph[t].storage.index]) continue;
      is_there[graph[t].storage.index] = true;
      live += graph[t].bytes;
    }
    const Bytes now = live + model.ops[o].workspace;
    if (model.ops[o].is_there && graph.ops[o].phase != Phase::update && now > most) {
      most = now;
      fullest = {o};
    }
    live -= ends[o];
  }
  return fullest;
}

IterationBounds::IterationBounds(const Problem& problem, DeviceId device, const BoundRules& rules)
    : problem_(problem), model_(snapshot_model(problem, device, stage_by_stage(rules))) {
  if (rules.one_call && has_one_call(problem)) one_call_ = snapshot_model(problem, device, rules);
  const auto is_there = [&](std::uint32_t o) { return model_.ops[o].is_there; };
  std::optional<OpId> loss;
  bool has_backward = false;
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    if (problem.graph.ops[o].phase == Phase::forward && is_there(o)) loss = OpId{o};
    has_backward |= is_backward(problem.graph.ops[o].phase);
  }
  if (loss && has_backward) instants_.push_back(*loss);
  const OpId fullest = fullest_op(model_);
  if (is_there(fullest.index) && (instants_.empty() || instants_.front() != fullest)) instants_.push_back(fullest);
}

SnapshotCuts& IterationBounds::cuts(OpId op, MicroBatch micro_batch) {
  std::unique_ptr<SnapshotCuts>& made = cuts_[{op, micro_batch}];
  if (!made) made = std::make_unique<SnapshotCuts>(model_, instant_at(model_, op, micro_batch));
  return *made;
}

/// Extra times of micro-batches add up, since no op runs for two of them. Gradients of the first are there for the
/// later ones where these come one after the other; else only what is live for a micro-batch alone counts.
void IterationBounds::improve(IterationBound& bound, Bytes budget, OpId op) {
  if (!model_.ops[op.index].is_there || std::isinf(model_.rules.out.value)) return;
  const std::uint32_t micro_batches = problem_.micro_batches;
  const bool in_turn = model_.rules.in_turn && sequence_slices(problem_.graph) == 1;
  if (micro_batches > 1 && !in_turn && model_.rules.out.value > 0) return;  // others' values leave at the same time
  const InstantBound first = cuts(op, MicroBatch::first).bound(budget);
  InstantBound later = first;
  if (micro_batches > 1 && in_turn && model_.rules.stay == Stays::all && problem_.gradients == Gradients::fresh) {
    later = cuts(op, MicroBatch::later).bound(budget);
  }
  if (first.needs || later.needs) {
    const Bytes needs = std::max(first.needs.value_or(Bytes{0}), later.needs.value_or(Bytes{0}));
    if (bound.needs && *bound.needs >= needs) return;
    bound.needs = needs;
    bound.at = op;
    return;
  }
  const Seconds time = all_once(model_) + first.extra + (micro_batches - 1) * later.extra;
  if (bound.needs || time <= bound.time || first.extra + later.extra <= Seconds{0}) return;
  bound.time = time;
  bound.at = op;
  bound.price = first.price + (micro_batches - 1) * later.price;
}

/// One call of autograd repeats and moves nothing: it is out of the question where all that it keeps does not fit.
bool IterationBounds::may_be_one_call(Bytes budget) const {
  return std::ranges::none_of(instants_, [&](OpId op) {
    SnapshotCuts cuts(*one_call_, instant_at(*one_call_, op));
    return cuts.instant().bytes + cuts.at(0).kept_bytes > budget;
  });
}

IterationBound IterationBounds::within(std::optional<Bytes> budget, std::span<const OpId> instants) {
  if (one_call_ && (!budget || may_be_one_call(*budget))) return {std::min(all_once(*one_call_), all_once(model_))};
  IterationBound bound{all_once(model_)};
  if (!budget) return bound;
  if (!instants_.empty()) bound.at = instants_.front();
  for (const OpId op : instants_) improve(bound, *budget, op);
  for (const OpId op : instants) improve(bound, *budget, op);
  return bound;
}

IterationBound IterationBounds::within(std::optional<Bytes> budget, OpId round, Seconds reached) {
  IterationBound bound = within(budget);
  const auto is_close = [&] { return bound.needs || bound.time >= (1 - close_enough) * reached; };
  if (!budget || is_close()) return bound;
  improve(bound, *budget, round);
  for (std::int64_t distance = farthest; distance > 0 && !is_close(); distance /= 2) {  // always round the best
    const std::int64_t from = bound.time > all_once(model_) ? bound.at->index : round.index;
    for (const std::int64_t o : {from - distance, from + distance}) {
      if (o >= 0 && o < static_cast<std::int64_t>(model_.ops.size())) improve(bound, *budget, id_at<OpId>(o));
    }
  }
  return bound;
}

}  // namespace plimsoll
