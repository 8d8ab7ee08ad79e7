// Collectives: what each kind computes from the ranks' inputs, range by range, and that all its steps are flows
// between its ranks. Enough bytes and the way from rank to rank are judge_flows.cpp's.

#include <algorithm>
#include <map>
#include <set>

#include "sim/judge/judge.h"

namespace plimsoll {
namespace {

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;  // from, to

Ranges ranges_of(const Schedule& schedule, const std::vector<BufferId>& buffers) {
  Ranges ranges;
  for (const BufferId b : buffers) {
    const Buffer& buffer = schedule[b];
    ranges.emplace_back(buffer.range_offset.count, (buffer.range_offset + buffer.range_length).count);
  }
  std::ranges::sort(ranges);
  return ranges;
}

bool all_equal(const Ranges& ranges) {
  return std::ranges::all_of(ranges, [&](const auto& range) { return range == ranges[0]; });
}

/// Whether the ranges follow each other without gap or overlap.
bool are_parts(const Ranges& ranges) {
  for (std::size_t r = 1; r < ranges.size(); ++r) {
    if (ranges[r].first != ranges[r - 1].second) return false;
  }
  return true;
}

/// Of a group's collectives.
struct Begun {
  std::map<MemoryId, std::map<CollectiveId, StepId>> by_rank;  ///< the first flow that it sends
  std::map<CollectiveId, std::pair<StepId, MemoryId>> first;   ///< of all ranks' and whose it is
};

/// The collective as if it exchanged this value alone.
Collective of_one_value(const Collective& collective, std::uint32_t value) {
  Collective alone{collective.kind, {}, {}};
  for (std::size_t i = value; i < collective.inputs.size(); i += collective.values) {
    alone.inputs.push_back(collective.inputs[i]);
    alone.outputs.push_back(collective.outputs[i]);
  }
  return alone;
}

}  // namespace

void Judge::prepare_exchanges() {
  for (const Collective& collective : schedule_.collectives) exchanges_.emplace_back(schedule_, collective);
  for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
    const CollectiveId c = schedule_.steps[s].collective;
    if (c == no_collective) continue;
    if (const std::optional<Exchange::Flow> flow = flow_of(id_at<StepId>(s), exchanges_[c.index])) {
      exchanges_[c.index].add(*flow);
    }
  }
  for (std::size_t c = 0; c < exchanges_.size(); ++c) {
    exchanges_[c].end_of_flows();
    if (!exchanges_[c].flows().empty()) continue;
    report(Rule::collective, std::nullopt, std::nullopt, "collective " + std::to_string(c) + " has no steps");
  }
  judge_order_of_collectives();
}

/// A rank begins a collective with the first flow that it sends. Two ranks that begin two of their group in opposite
/// orders wait for each other, however their flows are issued here: a communicator has one order.
void Judge::judge_order_of_collectives() {
  std::map<std::set<MemoryId>, Begun> groups;
  for (std::size_t c = 0; c < exchanges_.size(); ++c) {
    const Collective& collective = schedule_.collectives[c];
    const auto memory = [&](std::size_t rank) { return schedule_[collective.inputs[rank * collective.values]].memory; };
    std::set<MemoryId> ranks;
    for (std::size_t rank = 0; rank < collective.ranks(); ++rank) ranks.insert(memory(rank));
    Begun& begun = groups[std::move(ranks)];
    for (const Exchange::Flow& flow : exchanges_[c].flows()) {  // in the order of the steps
      begun.by_rank[memory(flow.from)].try_emplace(id_at<CollectiveId>(c), flow.step);
      begun.first.try_emplace(id_at<CollectiveId>(c), flow.step, memory(flow.from));
    }
  }
  for (const auto& [ranks, begun] : groups) {
    for (const auto& [rank, flows] : begun.by_rank) {
      std::vector<std::pair<StepId, CollectiveId>> order;
      for (const auto& [collective, step] : flows) order.emplace_back(step, collective);
      std::ranges::sort(order);
      for (std::size_t k = 1; k < order.size(); ++k) {
        const CollectiveId before = order[k - 1].second, behind = order[k].second;
        const auto& [first, other] = begun.first.at(behind);
        const bool is_crossed = first < begun.first.at(before).first && begun.by_rank.at(other).contains(before);
        if (!is_crossed) continue;
        report(Rule::collective, order[k - 1].first,
               text(order[k - 1].first) + " begins collective " + std::to_string(before.index) + " on '" +
                   platform_[rank].name + "', which begins collective " + std::to_string(behind.index) + " later; '" +
                   platform_[other].name + "' begins that one first (step " + std::to_string(first.index) +
                   "): ranks of one group that begin its collectives in opposite " + "orders wait for each other");
      }
    }
  }
}

/// The flow that a step of a collective is: it reads a buffer of each value of one rank and fills those of another.
std::optional<Exchange::Flow> Judge::flow_of(StepId s, const Exchange& exchange) {
  const Step& step = schedule_[s];
  const std::uint32_t values = schedule_.collectives[step.collective.index].values;
  const auto reads = schedule_.buffers_in(step.reads);
  const auto fills = schedule_.buffers_in(step.allocates.count > 0 ? step.allocates : step.writes);
  const bool fills_both_ways = step.allocates.count > 0 && step.writes.count > 0;
  if (!step.work.is_transfer() || reads.size() != values || fills.size() != values || fills_both_ways) {
    report(Rule::collective, s,
           text(s) + " must move one buffer of each value of a rank to those of another, over a route");
    return std::nullopt;
  }
  const Endpoints& ends = schedule_.routes[step.work.route.index];
  std::optional<std::uint32_t> sender, receiver;
  for (std::uint32_t v = 0; v < values; ++v) {
    const BufferId from = reads[v], to = fills[v];
    const std::optional<Exchange::Place> begins = exchange.place_of(from), comes = exchange.place_of(to);
    const bool is_pair = begins && comes && begins->value == v && comes->value == v && begins->rank != comes->rank;
    if (!is_pair || sender.value_or(begins->rank) != begins->rank || receiver.value_or(comes->rank) != comes->rank) {
      report(Rule::collective, s, to, "does not copy between buffers of two ranks of its collective: it fills");
      return std::nullopt;
    }
    sender = begins->rank;
    receiver = comes->rank;
    if (schedule_[from].memory != ends.from)
      report(Rule::wrong_place, s, from, "begins its route in another memory than that of");
    if (schedule_[to].memory != ends.to)
      report(Rule::wrong_place, s, to, "ends its route in another memory than that of");
  }
  if (!is_between_devices(step) || ends_of(step).from != ends.from || ends_of(step).to != ends.to) {
    report(Rule::wrong_place, s,
           text(s) + " must be on a stream from its sender's memory to its receiver's, of one of the two devices");
  }
  if (step.kind != StepKind::collective)
    report(Rule::malformed, s, text(s) + " is a step of a collective, but its kind is not 'collective'");
  const std::optional<Route>& way = route(step.work.route);
  if (!way) {
    report(Rule::wrong_place, s, text(s) + " sends over a route that does not exist");
    return std::nullopt;
  }
  return Exchange::Flow{s, *sender, *receiver, way->latency};
}

void Judge::judge_flow(StepId s) {
  const Step& step = schedule_[s];
  Exchange& exchange = exchanges_[step.collective.index];
  const Collective& collective = schedule_.collectives[step.collective.index];
  if (!exchange.is_next(s)) return;  // reported as no flow of it
  const auto finished = [this](StepId earlier) { return before_->finished(earlier); };
  if (const std::optional<std::string> wrong = exchange.next(finished)) {
    report(Rule::collective, s, text(s) + " " + *wrong);
  }
  if (exchange.carries_all()) {
    for (const BufferId input : collective.inputs) judge_use(s, input, "sends on");
  }
  for (const BufferId b : schedule_.buffers_in(step.writes)) held_in(b).readers.push_back(s);
  for (const BufferId b : schedule_.buffers_in(step.allocates)) held_in(b).readers.push_back(s);
  if (exchange.ends_with(s)) judge_whole_collective(s);
}

void Judge::judge_whole_collective(StepId s) {
  const CollectiveId id = schedule_[s].collective;
  const Collective& collective = schedule_.collectives[id.index];
  if (const std::optional<std::string> wrong = exchanges_[id.index].whole()) {
    report(Rule::collective, s, "collective " + std::to_string(id.index) + ": " + *wrong);
  }
  for (std::uint32_t v = 0; v < collective.values; ++v) {
    const Collective alone = of_one_value(collective, v);
    judge_exchanged_value(s, alone);
    judge_exchanged_ranges(s, alone);
    judge_while_it_ran(s, alone);
    give_results(s, alone);
  }
}

/// All ranks' buffers are of one value: of one gradient for sums; of one micro-batch and replica for what is only
/// handed round, unless it is the same in all replicas.
void Judge::judge_exchanged_value(StepId s, const Collective& collective) {
  const BufferId first = collective.inputs[0];
  const Buffer& one = schedule_[first];
  const bool sums = collective.kind == CollectiveKind::all_reduce || collective.kind == CollectiveKind::reduce_scatter;
  if (sums && makers_[one.tensor.index].empty()) {
    report(Rule::wrong_value, s, first, "sums, though it is no parameter's gradient,");
  }
  const bool of_micro_batch = per_micro_batch(graph_[one.tensor].kind);
  for (const std::vector<BufferId>* list : {&collective.inputs, &collective.outputs}) {
    for (const BufferId b : *list) {
      const Buffer& buffer = schedule_[b];
      const bool is_input = list == &collective.inputs;
      const bool is_same =
          graph_[buffer.tensor].storage == graph_[one.tensor].storage &&
          (!of_micro_batch || (buffer.micro_batch == one.micro_batch && buffer.replica == one.replica));
      if (!is_same) report(Rule::wrong_value, s, b, "exchanges, with another value's, the");
      if (buffer.is_packed()) report(Rule::lossy, s, b, "exchanges the compressed");
      if (is_input && (holds_nothing(b) || held_in(b).version != held_in(first).version)) {
        report(Rule::wrong_value, s, b, "exchanges, though it does not hold its value or another version of it,");
      }
    }
  }
}

/// Which bytes the ranks' inputs and outputs are of, for each kind.
void Judge::judge_exchanged_ranges(StepId s, const Collective& collective) {
  const Ranges in = ranges_of(schedule_, collective.inputs), out = ranges_of(schedule_, collective.outputs);
  const std::pair whole_in{in.front().first, in.back().second}, whole_out{out.front().first, out.back().second};
  bool right = false;
  std::string rule;
  switch (collective.kind) {
    case CollectiveKind::all_reduce:
      right = all_equal(in) && in == out;
      rule = "an all-reduce's inputs and outputs are all of the same bytes";
      break;
    case CollectiveKind::reduce_scatter:
      right = all_equal(in) && are_parts(out) && whole_in == whole_out;
      rule = "a reduce-scatter's inputs are of the same bytes, its outputs the parts of them";
      break;
    case CollectiveKind::all_gather:
      right = are_parts(in) && all_equal(out) && whole_in == whole_out;
      rule = "an all-gather's inputs are the parts of what each of its outputs holds";
      break;
    case CollectiveKind::broadcast:
      right = all_equal(in) && in == out;
      rule = "a broadcast's inputs and outputs are all of the same bytes";
      break;
    case CollectiveKind::all_to_all:
      rule = "an all-to-all exchanges parts of a dimension, which ranges of bytes do not name";
      break;
  }
  if (!right) report(Rule::collective, s, text(s) + " ends a collective of another kind: " + rule);
}

/// Nobody else used or changed the ranks' buffers between the collective's first flow at them and its end.
void Judge::judge_while_it_ran(StepId s, const Collective& collective) {
  const CollectiveId id = schedule_[s].collective;
  std::vector<std::optional<StepId>> touched(collective.inputs.size()), filled(collective.inputs.size());  // first
  for (const Exchange::Flow& flow : exchanges_[id.index].flows()) {
    if (!touched[flow.from]) touched[flow.from] = flow.step;
    if (!touched[flow.to]) touched[flow.to] = flow.step;
    if (!filled[flow.to]) filled[flow.to] = flow.step;
  }
  for (std::size_t rank = 0; rank < touched.size(); ++rank) {
    for (const BufferId b : {collective.inputs[rank], collective.outputs[rank]}) {
      for (const StepId maker : held_in(b).makers) {
        if (touched[rank] && maker > *touched[rank])
          report(Rule::not_ordered, s, b, "ends a collective that read, before it was made,");
      }
    }
    const BufferId output = collective.outputs[rank];
    if (held_in(output).life != Life::live) {
      report(Rule::collective, s, output, "ends a collective in which nobody fills");
      continue;
    }
    for (const StepId reader : held_in(output).readers) {
      if (schedule_[reader].collective == id || !filled[rank] || reader < *filled[rank]) continue;
      report(Rule::not_ordered, s, output,
             "ends a collective that fills, while step " + std::to_string(reader.index) + " reads it,");
    }
  }
}

void Judge::give_results(StepId s, const Collective& collective) {
  const CollectiveId id = schedule_[s].collective;
  const std::size_t givers = collective.kind == CollectiveKind::broadcast ? 1 : collective.inputs.size();
  const Held value = held_in(collective.inputs[0]);
  const bool is_gradient = !makers_[schedule_[collective.inputs[0]].tensor.index].empty();
  const auto inputs = std::span(collective.inputs).first(givers);
  const bool approximate = std::ranges::any_of(inputs, [&](BufferId b) { return held_in(b).approximate; });
  std::vector<RangedSums> sums;
  for (const BufferId b : collective.outputs) {
    const Buffer& output = schedule_[b];
    const bool as_before = !sums.empty() && output.range_offset == schedule_[collective.outputs[0]].range_offset &&
                           output.range_length == schedule_[collective.outputs[0]].range_length;
    if (!is_gradient || as_before) {
      sums.push_back(is_gradient ? sums.front() : RangedSums{});
      continue;
    }
    RangedSums& sum = sums.emplace_back(output.range_offset, output.range_length);
    for (std::size_t g = 0; g < givers; ++g) {
      const BufferId input = collective.inputs[g];
      if (!sum.add(held_in(input).sums)) report(Rule::repeated, s, input, "sums a contribution twice, from");
    }
  }
  std::vector<Steps> makers(collective.outputs.size());
  for (const Exchange::Flow& flow : exchanges_[id.index].flows()) makers[flow.to].push_back(flow.step);
  for (std::size_t rank = 0; rank < collective.outputs.size(); ++rank) {
    Held& held = fill(s, collective.outputs[rank], value.tensors);
    held.makers = makers[rank].empty() ? Steps{s} : std::move(makers[rank]);
    held.sums = std::move(sums[rank]);
    held.version = value.version;
    held.from = id;
    if (approximate) approximated(s, collective.outputs[rank]);
  }
}

/// A reader of a result waits until every rank that it depends on has given its part; of an all-reduce its own rank
/// too, whose part may come back with the others'.
void Judge::judge_result_of_collective(StepId s, BufferId b) {
  const CollectiveId from = held_in(b).from;
  const Exchange& exchange = exchanges_[from.index];
  const Collective& collective = schedule_.collectives[from.index];
  const Exchange::Place place = exchange.place_of(b).value_or(Exchange::Place{});
  const std::uint32_t own = place.rank;
  const bool needs_own = collective.kind == CollectiveKind::all_reduce;
  std::vector<bool> given(collective.ranks(), false);
  for (const Exchange::Flow& flow : exchange.flows()) {
    if (!given[flow.from]) given[flow.from] = before_->finished(flow.step);
  }
  for (std::uint32_t rank = 0; rank < given.size(); ++rank) {
    if (given[rank] || !(rank == own ? needs_own : exchange.needs(own, rank))) continue;
    report(Rule::collective, s, b,
           "reads, before the collective has had " + text(collective.inputs[rank * collective.values + place.value]) +
               ", its result");
  }
}

}  // namespace plimsoll
