#include "sim/bound/iteration_bound.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "sim/bound/branched_cut.h"
#include "sim/core/expects.h"
#include "sim/core/places.h"
#include "sim/core/slices.h"

namespace plimsoll {
namespace {

constexpr std::int64_t farthest = 32;  // instants that are tried round one, in ops
constexpr double close_enough = 1e-4;  // of a plan's time
// As snapshot has them for plans (strategies/offloading/snapshot/few_values.h).
constexpr std::size_t most_whole_ops = 400, branched_instants = 3;

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

/// What is there at the instant beside what that counts, however ops beside it are ordered, where each op runs once.
Bytes kept_where_none_repeats(const SnapshotModel& model, const Instant& instant) {
  Bytes sum;
  for (std::size_t v = 0; v < model.values.size(); ++v) {
    const SnapshotValue& value = model.values[v];
    if (!value.maker || instant.counted[v] || instant.side[*value.maker] != Side::before) continue;
    const auto is_after = [&](std::uint32_t o) { return instant.side[o] == Side::after; };
    if (std::ranges::any_of(value.readers, is_after)) sum += value.bytes;
  }
  return sum;
}

/// Of all micro-batches, each op once.
Seconds all_once(const SnapshotModel& model) {
  const std::uint32_t micro_batches = model.problem->micro_batches;
  return micro_batches == 1 ? model.base : micro_batches * (model.base - model.updates) + model.updates;
}

/// From the cut that keeps more, for which that budget is enough, to the next: what less asks for.
BoundBend bend_at(const SnapshotCuts& cuts, Bytes budget, const InstantBound& less) {
  BoundBend bend{.budget = budget, .at = cuts.instant().op};
  if (less.needs) bend.flip = Flip::nothing;
  if (!less.needs && !less.within) bend.flip = Flip::waits;
  if (!less.over || !less.within) return bend;
  for (std::uint32_t o = 0; o < less.within->again.size(); ++o) {
    if (less.within->again[o] && !less.over->again[o]) bend.ops.push_back({o});
  }
  bend.time = less.within->extra - less.over->extra;
  bend.bytes = budget - cuts.fits(*less.within);
  return bend;
}

/// Whether less memory is free between the two cuts round a budget.
bool is_free(const InstantBound& bound) {
  return bound.over && bound.within && !(bound.within->extra > bound.over->extra);
}

BoundBends bends_of(SnapshotCuts& cuts, Bytes budget) {
  BoundBends bends;
  InstantBound bound = cuts.bound(budget);
  if (bound.over && !is_free(bound)) bends.above = bend_at(cuts, cuts.fits(*bound.over), bound);
  while (bound.within) {
    const Bytes fits = cuts.fits(*bound.within);
    bound = cuts.bound(fits - Bytes{1});
    if (is_free(bound)) continue;
    bends.below = bend_at(cuts, fits, bound);
    break;
  }
  return bends;
}

}  // namespace

/// What comes behind a link or is the memory at a route's end may be slower than the device's own link.
BytesPerSecond ways_out(const Platform& platform, DeviceId device) {
  const MemoryId own = platform[device].memory;
  std::map<LinkId, std::pair<double, double>> by_link;  // the device's own: its rate, and that of all routes by it
  for (const MemoryId place : {place::host, place::disk}) {
    const std::optional<MemoryId> there = memory_at(platform, device, place);
    const std::optional<Route> route = there && *there != own ? route_between(platform, own, *there) : std::nullopt;
    if (!route) continue;
    if (route->links.empty()) return unlimited_bandwidth;
    const LinkUse first = route->links.front();
    auto& [link, routes] = by_link[first.link];
    link = bandwidth_of(platform[first.link], first.down).value;
    routes += route->bandwidth.value;
  }
  double sum = 0;
  for (const auto& [first, rates] : by_link) sum += std::min(rates.first, rates.second);
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

bool IterationBounds::are_in_turn() const {
  return model_.rules.in_turn && sequence_slices(problem_.graph) == 1;
}

/// Gradients of the first micro-batch are there for the later ones where these come one after the other; else only what
/// is live for a micro-batch alone counts.
MicroBatch IterationBounds::later_ones() const {
  const bool add_gradients = model_.rules.stay == Stays::all && problem_.gradients == Gradients::fresh;
  return problem_.micro_batches > 1 && are_in_turn() && add_gradients ? MicroBatch::later : MicroBatch::first;
}

bool IterationBounds::says_something(OpId op) const {
  const double out = model_.rules.out.value;
  if (problem_.micro_batches > 1 && !are_in_turn() && out > 0) return false;  // others' values leave at the same time
  return model_.ops[op.index].is_there && !std::isinf(out);
}

/// Extra times of micro-batches add up, since no op runs for two of them.
void IterationBounds::improve(IterationBound& bound, Bytes budget, OpId op) {
  if (!says_something(op)) return;
  const std::uint32_t micro_batches = problem_.micro_batches;
  const InstantBound first = cuts(op, MicroBatch::first).bound(budget);
  const InstantBound later = later_ones() == MicroBatch::first ? first : cuts(op, MicroBatch::later).bound(budget);
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
std::pair<Bytes, OpId> IterationBounds::one_call_needs() const {
  std::pair<Bytes, OpId> most;
  for (const OpId op : instants_) {
    const Instant instant = instant_at(*one_call_, op);
    most = std::max(most, {instant.bytes + kept_where_none_repeats(*one_call_, instant), op});
  }
  return most;
}

IterationBound IterationBounds::within(std::optional<Bytes> budget, std::span<const OpId> instants) {
  if (one_call_ && (!budget || one_call_needs().first <= *budget))
    return {std::min(all_once(*one_call_), all_once(model_))};
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

IterationBound IterationBounds::within_whole_values(Bytes budget, std::size_t nodes) {
  IterationBound bound = within(budget);
  const bool is_one_call = one_call_ && one_call_needs().first <= budget;
  const bool is_large = model_.ops.size() > most_whole_ops || problem_.micro_batches > 1;
  if (is_one_call || is_large || model_.rules.out.value > 0) return bound;
  std::vector<std::pair<Seconds, OpId>> proven;
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    if (!says_something({o})) continue;
    improve(bound, budget, {o});
    proven.emplace_back(cuts({o}, MicroBatch::first).bound(budget).extra, OpId{o});
  }
  if (bound.needs) return bound;
  std::ranges::stable_sort(proven, std::ranges::greater{}, &std::pair<Seconds, OpId>::first);
  proven.resize(std::min(proven.size(), branched_instants));
  for (const auto& [extra, op] : proven) {
    const BranchedBound found = branched_bound(cuts(op, MicroBatch::first), model_, budget, {.nodes = nodes});
    EXPECTS(std::isfinite(found.extra.value));  // what keeps the fewest bytes fits
    if (model_.base + found.extra <= bound.time) continue;
    bound.time = model_.base + found.extra;
    bound.at = op;
    bound.price = cuts(op, MicroBatch::first).bound(budget).price;
  }
  return bound;
}

BoundBends IterationBounds::bends(Bytes budget) {
  BoundBends nearest;
  const LowerBounds any = lower_bounds(problem_, 1, model_.rules.stay, model_.rules.codecs);
  const BoundBend least{.budget = any.memory, .at = any.memory_by, .flip = Flip::nothing};
  if (budget < least.budget) {
    nearest.above = least;
    return nearest;
  }
  if (one_call_) {
    if (const auto [needs, at] = one_call_needs(); needs <= budget) {
      nearest.below = BoundBend{.budget = needs, .at = at, .flip = Flip::many_calls};
      return nearest;
    }
  }
  const IterationBound bound = within(budget);
  if (bound.needs) {
    nearest.above = BoundBend{.budget = *bound.needs, .at = bound.at, .flip = Flip::nothing};
    return nearest;
  }
  std::vector<OpId> deciding = instants_;
  if (bound.time > all_once(model_)) deciding = {bound.at.value()};
  for (const OpId op : deciding) {
    if (!says_something(op)) continue;
    for (const MicroBatch micro_batch : {MicroBatch::first, later_ones()}) {
      BoundBends its = bends_of(cuts(op, micro_batch), budget);
      if (its.below && (!nearest.below || its.below->budget > nearest.below->budget)) nearest.below = its.below;
      if (its.above && (!nearest.above || its.above->budget < nearest.above->budget)) nearest.above = its.above;
    }
  }
  if (!nearest.below || nearest.below->budget < least.budget) nearest.below = least;
  return nearest;
}

}  // namespace plimsoll
