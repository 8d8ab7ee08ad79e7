// The judge of places: ops run where the trace says, those that it keeps together on one device for each micro-batch,
// those that it pins to a host there. Rule: wrong_place.

#include <unordered_map>

#include "sim/judge/judges.h"

namespace plimsoll {
namespace {

class PlaceJudge final : public Judge {
 public:
  using Judge::Judge;
  void end() override;
};

void PlaceJudge::end() {
  constexpr std::uint32_t no_group = no_op.index;
  std::vector<std::uint32_t> group_of(graph_.ops.size(), no_group);
  for (std::uint32_t g = 0; g < graph_.colocate.size(); ++g) {
    for (const OpId op : graph_.colocate[g]) group_of[op.index] = g;
  }
  std::vector<bool> is_pinned(graph_.ops.size(), false);
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    for (const auto& [name, value] : graph_.ops[o].attributes)
      is_pinned[o] = is_pinned[o] || (name == "device" && value == "host");
  }
  std::unordered_map<std::uint64_t, StepId> first;  // by group and micro-batch
  for (std::size_t i = 0; i < schedule_.steps.size() && !findings_.are_enough(); ++i) {
    const StepId s = id_at<StepId>(i);
    const Step& step = schedule_[s];
    if (step.op == no_op || graph_[step.op].phase == Phase::update) continue;
    const bool on_device = schedule_[step.stream].way == way::compute;
    if (is_pinned[step.op.index] && on_device) {
      report(Rule::wrong_place, s, text(s) + " computes on a device what the trace pins to the host");
    }
    const std::uint32_t group = group_of[step.op.index];
    if (group == no_group) continue;
    const auto [other, is_first] = first.try_emplace((std::uint64_t{group} << 32U) | step.micro_batch, s);
    if (is_first) continue;
    const Stream &here = schedule_[step.stream], &there = schedule_[schedule_[other->second].stream];
    if (here.device == there.device && here.way == there.way) continue;
    report(Rule::wrong_place, s,
           text(s) + " computes elsewhere than " + text(other->second) + ", with which the trace keeps it together");
  }
}

}  // namespace

std::unique_ptr<Judge> place_judge(Walk& walk) {
  return std::make_unique<PlaceJudge>(walk);
}

}  // namespace plimsoll
