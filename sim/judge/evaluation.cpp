// The judge of evaluations between iterations: one on each device that runs the forward, on its compute stream, before
// any other step of any stream. It reads each parameter of the forward, whole and where it computes, and changes
// nothing. What it takes is judged as a cost. Rules: malformed, wrong_place, missing_input, wrong_value, repeated,
// not_ordered and incomplete of them.

#include <algorithm>
#include <map>
#include <set>

#include "sim/judge/judges.h"

namespace plimsoll {
namespace {

class EvaluationJudge final : public Judge {
 public:
  explicit EvaluationJudge(Walk& walk) : Judge(walk), has_begun_(walk.schedule.streams.size(), false) {
    for (const Op& op : graph_.ops) {
      if (op.phase != Phase::forward) continue;
      for (const TensorId t : op.inputs) {
        if (graph_[t].kind == TensorKind::parameter) read_.emplace(graph_[t].storage, t);
      }
    }
  }
  void states(StepId s) override;
  void converts(StepId s) override;
  void end() override;

 private:
  void judge_reads(StepId s);

  std::map<StorageId, TensorId> read_;  ///< parameters that the forward reads
  std::map<DeviceId, StepId> evaluated_;
  std::set<DeviceId> runs_forward_;
  std::vector<bool> has_begun_;  ///< by stream: with another step
};

/// Of every step: what comes first on its stream waits for all evaluations.
void EvaluationJudge::states(StepId s) {
  if (!schedule_.evaluation) return;
  const Step& step = schedule_[s];
  const DeviceId device = schedule_[step.stream].device;
  if (step.op != no_op && graph_[step.op].phase == Phase::forward) runs_forward_.insert(device);
  if (walk_.evaluates(step)) {
    if (!evaluated_.emplace(device, s).second) {
      report(Rule::repeated, s, text(s) + " evaluates a second time on its device");
    } else if (std::ranges::find(has_begun_, true) != has_begun_.end()) {
      report(Rule::not_ordered, s, text(s) + " evaluates when the iteration has begun");
    }
    return;
  }
  if (has_begun_[step.stream.index]) return;
  has_begun_[step.stream.index] = true;
  for (const auto& [of, evaluation] : evaluated_) {
    if (walk_.ordered(evaluation, s)) continue;
    return report(Rule::not_ordered, s, text(s) + " begins the iteration and does not wait for the evaluation");
  }
}

void EvaluationJudge::converts(StepId s) {
  const Step& step = schedule_[s];
  if (step.writes.count + step.allocates.count + step.frees.count > 0 || step.micro_batch != 0) {
    report(Rule::malformed, s, text(s) + " evaluates: it changes, makes and frees nothing, and is of micro-batch 0");
  }
  if (schedule_[step.stream].way != way::compute) {
    report(Rule::wrong_place, s, text(s) + " evaluates on a stream on which no device computes");
  }
  judge_reads(s);
}

void EvaluationJudge::judge_reads(StepId s) {
  const Step& step = schedule_[s];
  std::set<StorageId> whole;
  for (const BufferId b : schedule_.buffers_in(step.reads)) {
    const Buffer& buffer = schedule_[b];
    const Tensor& tensor = graph_[buffer.tensor];
    if (tensor.kind != TensorKind::parameter || buffer.is_packed() || buffer.lossy) {
      report(Rule::wrong_value, s, b, "evaluates with something else than parameters as they are,");
    }
    if (buffer.memory != walk_.own_memory(step)) {
      report(Rule::wrong_place, s, b, "computes in another memory than that of");
    }
    if (buffer.range_length == tensor.bytes) whole.insert(tensor.storage);
  }
  for (const auto& [storage, tensor] : read_) {
    if (whole.contains(storage)) continue;
    report(Rule::missing_input, s, text(s) + " evaluates without the whole of '" + graph_[tensor].name + "'");
  }
}

void EvaluationJudge::end() {
  for (const DeviceId device : runs_forward_) {
    if (evaluated_.contains(device)) continue;
    report(Rule::incomplete, std::nullopt, std::nullopt,
           "'" + platform_[device].name + "' runs the forward and never evaluates");
  }
}

}  // namespace

std::unique_ptr<Judge> evaluation_judge(Walk& walk) {
  return std::make_unique<EvaluationJudge>(walk);
}

}  // namespace plimsoll
