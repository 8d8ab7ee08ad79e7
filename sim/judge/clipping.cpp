// The judge of clipping by the norm of all gradients: a pass for the norm reads complete gradients that are not scaled
// yet; a pass that scales comes after such passes have read all gradients that updates read, whole, of every replica;
// an update reads only gradients that were scaled, once. Rules: incomplete, wrong_value, wrong_place, repeated
// and malformed of them.

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "sim/core/collective_op.h"
#include "sim/judge/judges.h"

namespace plimsoll {
namespace {

class ClippingJudge final : public Judge {
 public:
  explicit ClippingJudge(Walk& walk) : Judge(walk) {
    if (schedule_.clips_gradients) find_updated();
  }
  void converts(StepId s) override;
  void runs_op(StepId s) override;

 private:
  struct ReadRange {
    std::int64_t begin = 0, end = 0;
    StepId by;
  };
  using Gradient = std::pair<StorageId, std::uint32_t>;  // and replica

  bool updates(const Op& op) const { return op.phase == Phase::update && !collective_of(op); }
  void find_updated();
  void judge_buffers(StepId s, const Slice& slice);
  void judge_norm_is_known(StepId s);

  std::set<std::pair<StorageId, TensorId>> updated_;  ///< gradients that updates read
  std::map<Gradient, std::vector<ReadRange>> read_;   ///< for the norm
};

void ClippingJudge::find_updated() {
  for (const Op& op : graph_.ops) {
    if (!updates(op)) continue;
    for (const TensorId t : op.inputs) {
      if (graph_[t].kind == TensorKind::parameter_gradient) updated_.emplace(graph_[t].storage, t);
    }
  }
}

void ClippingJudge::converts(StepId s) {
  const Step& step = schedule_[s];
  if (step.kind != StepKind::update || step.micro_batch != 0) {
    report(Rule::malformed, s, text(s) + " clips gradients: it must be of kind 'update' and of micro-batch 0");
  }
  judge_buffers(s, step.reads);
  judge_buffers(s, step.writes);
  for (const BufferId b : schedule_.buffers_in(step.reads)) {
    const Buffer& buffer = schedule_[b];
    read_[{graph_[buffer.tensor].storage, buffer.replica}].push_back(
        {buffer.range_offset.count, (buffer.range_offset + buffer.range_length).count, s});
  }
  if (step.writes.count == 0) return;
  judge_norm_is_known(s);
  for (const BufferId b : schedule_.buffers_in(step.writes)) {
    const bool is_approximate = holdings_[b].approximate;
    HeldTensors tensors = holdings_[b].tensors;
    HeldValue& held = holdings_.fill(s, b, std::move(tensors));
    held.approximate = is_approximate;
    held.is_clipped = true;
  }
}

void ClippingJudge::judge_buffers(StepId s, const Slice& slice) {
  for (const BufferId b : schedule_.buffers_in(slice)) {
    const Buffer& buffer = schedule_[b];
    if (graph_[buffer.tensor].kind != TensorKind::parameter_gradient || buffer.is_packed()) {
      report(Rule::wrong_value, s, b, "clips gradients, but names");
    } else if (!walk_.is_complete(b)) {
      report(Rule::incomplete, s, b, "clips before all contributions are in");
    } else if (holdings_[b].is_clipped) {
      report(Rule::repeated, s, b, "clips again");
    }
    if (buffer.memory != walk_.own_memory(schedule_[s])) {
      report(Rule::wrong_place, s, b, "computes in another memory than that of");
    }
  }
}

/// Each byte of each gradient was read by a pass that is over.
void ClippingJudge::judge_norm_is_known(StepId s) {
  for (const auto& [storage, tensor] : updated_) {
    for (std::uint32_t replica = 0; replica < schedule_.replicas; ++replica) {
      std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
      for (const ReadRange& range : read_[{storage, replica}]) {
        if (walk_.ordered(range.by, s)) ranges.emplace_back(range.begin, range.end);
      }
      std::ranges::sort(ranges);
      std::int64_t known = 0;
      for (const auto& [begin, end] : ranges) {
        if (begin <= known) known = std::max(known, end);
      }
      if (known >= graph_[tensor].bytes.count) continue;
      return report(Rule::incomplete, s,
                    text(s) + " scales gradients before the norm of '" + graph_[tensor].name + "' is known");
    }
  }
}

void ClippingJudge::runs_op(StepId s) {
  const Step& step = schedule_[s];
  if (!schedule_.clips_gradients || !updates(graph_[step.op])) return;
  for (const BufferId b : schedule_.buffers_in(step.reads)) {
    if (graph_[schedule_[b].tensor].kind != TensorKind::parameter_gradient || holdings_[b].is_clipped) continue;
    report(Rule::wrong_value, s, b, "updates with what was not clipped,");
  }
}

}  // namespace

std::unique_ptr<Judge> clipping_judge(Walk& walk) {
  return std::make_unique<ClippingJudge>(walk);
}

}  // namespace plimsoll
