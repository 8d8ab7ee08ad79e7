// The judge of copies and conversions: one buffer read, one filled, both of the same value, at the ends of the route or
// in the device's memory. A conversion packs or unpacks; one that changes a parameter gradient which is there adds to
// it. Rules: wrong_value, wrong_place, repeated, lossy and malformed of them.

#include "sim/core/names.h"
#include "sim/judge/approximations.h"
#include "sim/judge/judges.h"
#include "sim/judge/packed_forms.h"

namespace plimsoll {
namespace {

class CopyJudge final : public Judge {
 public:
  CopyJudge(Walk& walk, ApproximationJudge& approximations) : Judge(walk), approximations_(approximations) {}
  void copies(StepId s) override;
  void converts(StepId s) override;

 private:
  bool judge_pair(StepId s);
  void judge_packing(StepId s, BufferId from, BufferId to);

  ApproximationJudge& approximations_;
};

bool CopyJudge::judge_pair(StepId s) {
  const Step& step = schedule_[s];
  const std::size_t filled = step.writes.count + step.allocates.count;
  if (step.reads.count != 1 || filled != 1) {
    report(Rule::malformed, s, text(s) + " must read one buffer and fill one");
    return false;
  }
  const auto [from, to] = walk_.pair_of(step);
  const Buffer& source = schedule_[from];
  const Buffer& target = schedule_[to];
  const bool same_value = graph_[source.tensor].storage == graph_[target.tensor].storage &&
                          source.micro_batch == target.micro_batch && source.replica == target.replica;
  const bool inside = target.range_offset >= source.range_offset &&
                      target.range_offset + target.range_length <= source.range_offset + source.range_length;
  if (!same_value || !inside || holdings_.holds_nothing(from))
    report(Rule::wrong_value, s, to, "copies " + text(from) + ", which is not the value of");
  const HeldValue& copied = holdings_[from];
  const bool adds = walk_.adds_gradients(step);
  if (adds && (source.is_packed() || target.is_packed())) report(Rule::lossy, s, to, "adds compressed values to");
  const RangedSums before = adds ? holdings_[to].sums : RangedSums{};
  const bool is_clipped = copied.is_clipped && !adds;
  const bool is_approximate = copied.approximate || (adds && holdings_[to].approximate);
  HeldValue& held = holdings_.fill(s, to, copied.tensors);
  if (!walk_.makers[target.tensor.index].empty())
    held.sums = copied.sums.within(target.range_offset, target.range_length);
  if (adds && held.version != copied.version) {
    report(Rule::wrong_value, s, to, "adds what another update takes to");
  }
  if (adds && !held.sums.add(before)) report(Rule::repeated, s, to, "adds a contribution a second time to");
  held.version = copied.version;
  held.is_pooled = copied.is_pooled;
  held.is_clipped = is_clipped;
  if (is_approximate) approximations_.approximated(s, to);
  return true;
}

void CopyJudge::copies(StepId s) {
  const Step& step = schedule_[s];
  if (!judge_pair(s)) return;
  const auto [from, to] = walk_.pair_of(step);
  const Endpoints& ends = schedule_.routes[step.work.route.index];
  if (schedule_[from].memory != ends.from)
    report(Rule::wrong_place, s, from, "begins its route in another memory than that of");
  if (schedule_[to].memory != ends.to)
    report(Rule::wrong_place, s, to, "ends its route in another memory than that of");
  if (schedule_[from].codec != schedule_[to].codec)
    report(Rule::lossy, s, to, "changes how it is packed, which no copy does, with");
}

void CopyJudge::converts(StepId s) {
  if (!judge_pair(s)) return;
  const Step& step = schedule_[s];
  if (!walk_.adds_gradients(step)) {
    const auto [from, to] = walk_.pair_of(step);
    judge_packing(s, from, to);
  }
  for (const Slice& slice : {step.reads, step.writes, step.allocates}) {
    for (const BufferId b : schedule_.buffers_in(slice)) {
      if (schedule_[b].memory != walk_.own_memory(step))
        report(Rule::wrong_place, s, b, "computes in another memory than that of");
    }
  }
}

/// A value becomes a packed form, or what that restores.
void CopyJudge::judge_packing(StepId s, BufferId from, BufferId to) {
  const Step& step = schedule_[s];
  const bool packs = schedule_[to].is_packed();
  if (packs == schedule_[from].is_packed()) {
    return report(Rule::lossy, s, to, "converts between two forms of which not one is packed:");
  }
  const Codec& codec = schedule_.codecs[schedule_[packs ? to : from].codec.index];
  if (step.kind != (packs ? StepKind::pack : StepKind::unpack)) {
    report(Rule::malformed, s, text(s) + " must be of kind '" + (packs ? "pack'" : "unpack'"));
  }
  if (!packs && restores_nothing(codec)) {
    report(Rule::lossy, s, to, "restores from '" + std::string(written(codec.kind)) + "', which has no values to give");
  }
  if (schedule_[from].range_length != schedule_[to].range_length) {
    report(Rule::wrong_value, s, to, "converts only a part of " + text(from) + " to");
  }
  holdings_[to].is_pooled |= codec.kind == CodecKind::pool;
  if (is_approximate(codec)) approximations_.approximated(s, to);
}

}  // namespace

std::unique_ptr<Judge> copy_judge(Walk& walk, ApproximationJudge& approximations) {
  return std::make_unique<CopyJudge>(walk, approximations);
}

}  // namespace plimsoll
