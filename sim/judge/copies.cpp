// Copies and conversions: one buffer read, one filled, both of the same value. A conversion that changes a parameter
// gradient which is there adds to it.

#include "sim/judge/judge.h"

namespace plimsoll {

bool Judge::adds_gradients(const Step& step) const {
  if (step.op != no_op || step.work.is_transfer() || step.reads.count != 1 || step.writes.count != 1) return false;
  const TensorId t = schedule_[schedule_.buffers_in(step.writes)[0]].tensor;
  return step.allocates.count == 0 && graph_[t].kind == TensorKind::parameter_gradient;
}

std::pair<BufferId, BufferId> Judge::pair_of(const Step& step) const {
  return {schedule_.buffers_in(step.reads)[0],
          schedule_.buffers_in(step.allocates.count == 1 ? step.allocates : step.writes)[0]};
}

bool Judge::judge_pair(StepId s) {
  const Step& step = schedule_[s];
  const std::size_t filled = step.writes.count + step.allocates.count;
  if (step.reads.count != 1 || filled != 1) {
    report(Rule::malformed, s, text(s) + " must read one buffer and fill one");
    return false;
  }
  const auto [from, to] = pair_of(step);
  const Buffer& source = schedule_[from];
  const Buffer& target = schedule_[to];
  const bool same_value = graph_[source.tensor].storage == graph_[target.tensor].storage &&
                          source.micro_batch == target.micro_batch && source.replica == target.replica;
  const bool inside = target.range_offset >= source.range_offset &&
                      target.range_offset + target.range_length <= source.range_offset + source.range_length;
  if (!same_value || !inside || holds_nothing(from))
    report(Rule::wrong_value, s, to, "copies " + text(from) + ", which is not the value of");
  const Held& copied = held_in(from);
  const bool adds = adds_gradients(step);
  if (adds && (source.is_packed() || target.is_packed())) report(Rule::lossy, s, to, "adds compressed values to");
  const RangedSums before = adds ? held_in(to).sums : RangedSums{};
  const bool is_approximate = copied.approximate || (adds && held_in(to).approximate);
  Held& held = fill(s, to, copied.tensors);
  if (!makers_[target.tensor.index].empty()) held.sums = copied.sums.within(target.range_offset, target.range_length);
  if (adds && held.version != copied.version) {
    report(Rule::wrong_value, s, to, "adds what another update takes to");
  }
  if (adds && !held.sums.add(before)) report(Rule::repeated, s, to, "adds a contribution a second time to");
  held.version = copied.version;
  held.is_pooled = copied.is_pooled;
  if (is_approximate) approximated(s, to);
  return true;
}

void Judge::judge_copy(StepId s) {
  const Step& step = schedule_[s];
  if (!judge_pair(s)) return;
  const auto [from, to] = pair_of(step);
  const Endpoints& ends = schedule_.routes[step.work.route.index];
  if (schedule_[from].memory != ends.from)
    report(Rule::wrong_place, s, from, "begins its route in another memory than that of");
  if (schedule_[to].memory != ends.to)
    report(Rule::wrong_place, s, to, "ends its route in another memory than that of");
  if (schedule_[from].codec != schedule_[to].codec)
    report(Rule::lossy, s, to, "changes how it is packed, which no copy does, with");
}

void Judge::judge_conversion(StepId s) {
  if (!judge_pair(s)) return;
  const Step& step = schedule_[s];
  if (!adds_gradients(step)) {
    const auto [from, to] = pair_of(step);
    judge_packing(s, from, to);
  }
  for (const Slice& slice : {step.reads, step.writes, step.allocates}) {
    for (const BufferId b : schedule_.buffers_in(slice)) {
      if (schedule_[b].memory != own_memory(step))
        report(Rule::wrong_place, s, b, "computes in another memory than that of");
    }
  }
}

}  // namespace plimsoll
