// The judge of what collectives compute: each kind's results from the ranks' inputs, range by range, once the last flow
// is there. Rules: collective for a result of another kind, wrong_value, repeated, lossy and not_ordered of ranks'
// buffers.

#include <algorithm>

#include "sim/judge/approximations.h"
#include "sim/judge/exchange.h"
#include "sim/judge/judges.h"

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

/// The collective as if it exchanged this value alone.
Collective of_one_value(const Collective& collective, std::uint32_t value) {
  Collective alone{collective.kind, {}, {}};
  for (std::size_t i = value; i < collective.inputs.size(); i += collective.values) {
    alone.inputs.push_back(collective.inputs[i]);
    alone.outputs.push_back(collective.outputs[i]);
  }
  return alone;
}

class ExchangeJudge final : public Judge {
 public:
  ExchangeJudge(Walk& walk, ApproximationJudge& approximations) : Judge(walk), approximations_(approximations) {}
  void exchanges(StepId s) override;

 private:
  void judge_value(StepId s, const Collective& collective);
  void judge_ranges(StepId s, const Collective& collective);
  void judge_while_it_ran(StepId s, const Collective& collective);
  void give_results(StepId s, const Collective& collective);

  ApproximationJudge& approximations_;
};

void ExchangeJudge::exchanges(StepId s) {
  const CollectiveId id = schedule_[s].collective;
  const Collective& collective = schedule_.collectives[id.index];
  if (!walk_.exchanges[id.index].ends_with(s)) return;
  for (std::uint32_t v = 0; v < collective.values; ++v) {
    const Collective alone = of_one_value(collective, v);
    judge_value(s, alone);
    judge_ranges(s, alone);
    judge_while_it_ran(s, alone);
    give_results(s, alone);
  }
}

/// All ranks' buffers are of one value: of one gradient for sums; of one micro-batch and replica for what is only
/// handed round, unless it is the same in all replicas.
void ExchangeJudge::judge_value(StepId s, const Collective& collective) {
  const BufferId first = collective.inputs[0];
  const Buffer& one = schedule_[first];
  const bool sums = collective.kind == CollectiveKind::all_reduce || collective.kind == CollectiveKind::reduce_scatter;
  if (sums && walk_.makers[one.tensor.index].empty()) {
    report(Rule::wrong_value, s, first, "sums, though it is not a parameter's gradient,");
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
      if (is_input && (holdings_.holds_nothing(b) || holdings_[b].version != holdings_[first].version)) {
        report(Rule::wrong_value, s, b, "exchanges, though it does not hold its value or another version of it,");
      }
    }
  }
}

/// Which bytes the ranks' inputs and outputs are of, for each kind.
void ExchangeJudge::judge_ranges(StepId s, const Collective& collective) {
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
    case CollectiveKind::shift:
      rule = "a shift hands on parts of a dimension, which ranges of bytes do not name";
      break;
  }
  if (!right) report(Rule::collective, s, text(s) + " ends a collective of another kind: " + rule);
}

/// Nobody else used or changed the ranks' buffers between the collective's first flow at them and its end.
void ExchangeJudge::judge_while_it_ran(StepId s, const Collective& collective) {
  const CollectiveId id = schedule_[s].collective;
  std::vector<std::optional<StepId>> touched(collective.inputs.size()), filled(collective.inputs.size());  // first
  for (const Exchange::Flow& flow : walk_.exchanges[id.index].flows()) {
    if (!touched[flow.from]) touched[flow.from] = flow.step;
    if (!touched[flow.to]) touched[flow.to] = flow.step;
    if (!filled[flow.to]) filled[flow.to] = flow.step;
  }
  for (std::size_t rank = 0; rank < touched.size(); ++rank) {
    for (const BufferId b : {collective.inputs[rank], collective.outputs[rank]}) {
      for (const StepId maker : holdings_[b].makers) {
        if (touched[rank] && maker > *touched[rank])
          report(Rule::not_ordered, s, b, "ends a collective that read, before it was made,");
      }
    }
    const BufferId output = collective.outputs[rank];
    if (holdings_[output].life != Life::live) {
      report(Rule::collective, s, output, "ends a collective in which nobody fills");
      continue;
    }
    for (const StepId reader : holdings_[output].readers) {
      if (schedule_[reader].collective == id || !filled[rank] || reader < *filled[rank]) continue;
      report(Rule::not_ordered, s, output,
             "ends a collective that fills, while step " + std::to_string(reader.index) + " reads it,");
    }
  }
}

void ExchangeJudge::give_results(StepId s, const Collective& collective) {
  const CollectiveId id = schedule_[s].collective;
  const std::size_t givers = collective.kind == CollectiveKind::broadcast ? 1 : collective.inputs.size();
  const HeldValue value = holdings_[collective.inputs[0]];
  const bool is_gradient = !walk_.makers[schedule_[collective.inputs[0]].tensor.index].empty();
  const auto inputs = std::span(collective.inputs).first(givers);
  const bool approximate = std::ranges::any_of(inputs, [&](BufferId b) { return holdings_[b].approximate; });
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
      if (!sum.add(holdings_[input].sums)) report(Rule::repeated, s, input, "sums a contribution twice, from");
    }
  }
  std::vector<HeldSteps> makers(collective.outputs.size());
  for (const Exchange::Flow& flow : walk_.exchanges[id.index].flows()) makers[flow.to].push_back(flow.step);
  for (std::size_t rank = 0; rank < collective.outputs.size(); ++rank) {
    HeldValue& held = holdings_.fill(s, collective.outputs[rank], value.tensors);
    held.makers = makers[rank].empty() ? HeldSteps{s} : std::move(makers[rank]);
    held.sums = std::move(sums[rank]);
    held.version = value.version;
    held.from = id;
    if (approximate) approximations_.approximated(s, collective.outputs[rank]);
  }
}

}  // namespace

std::unique_ptr<Judge> exchange_judge(Walk& walk, ApproximationJudge& approximations) {
  return std::make_unique<ExchangeJudge>(walk, approximations);
}

}  // namespace plimsoll
