// The judge of outputs: an op fills exactly what it makes, all of it, and changes only what it writes; a contribution
// to a gradient comes once. Rules: wrong_output, and repeated, wrong_value and lossy of what an op fills.

#include <algorithm>
#include <utility>

#include "sim/judge/holdings.h"
#include "sim/judge/judges.h"
#include "sim/judge/versions.h"

namespace plimsoll {
namespace {

class OutputJudge final : public Judge {
 public:
  OutputJudge(Walk& walk, VersionJudge& versions) : Judge(walk), versions_(versions) {}
  void runs_op(StepId s) override;

 private:
  void judge_filled(StepId s, const Op& op);
  void judge_views(StepId s, const Op& op);
  void fill_output(StepId s, BufferId b, HeldTensors tensors);
  std::size_t contribution(const Step& step, TensorId gradient) const;

  VersionJudge& versions_;
};

void OutputJudge::runs_op(StepId s) {
  const Step& step = schedule_[s];
  const Op& op = graph_[step.op];
  const auto writes = schedule_.buffers_in(step.writes);
  for (const auto list : {writes, schedule_.buffers_in(step.allocates)}) {
    for (const BufferId b : list) {
      const Buffer& buffer = schedule_[b];
      const StorageId storage = walk_.storage_of(b);
      const auto of_buffer = [&](TensorId t) { return graph_[t].storage == storage; };
      const bool loads = graph_[buffer.tensor].kind == TensorKind::input && !holdings_[b].makers.empty() &&
                         holdings_[b].makers.front() == s;
      if (loads) continue;
      HeldTensors tensors;
      for (const TensorId t : op.outputs) {
        if (of_buffer(t)) tensors.push_back(t);
      }
      if (tensors.empty() && std::ranges::none_of(op.mutates, of_buffer)) {
        report(Rule::wrong_output, s, b, "does not make, but fills");
        continue;
      }
      if (!walk_.belongs(buffer, step)) report(Rule::wrong_output, s, b, "fills another micro-batch's or replica's");
      if (buffer.is_packed()) report(Rule::lossy, s, b, "fills with plain values the compressed");
      fill_output(s, b, std::move(tensors));
    }
  }
  for (const TensorId t : op.mutates) {
    const bool is_new =
        !schedule_.updates.are_synchronous() && walk_.fills(step.allocates, t);  // the old version stays
    if (!is_new && !walk_.fills(step.writes, t))
      report(Rule::wrong_output, s, text(s) + " changes '" + graph_[t].name + "' without writing it");
  }
  judge_filled(s, op);
  judge_views(s, op);
}

/// Every output is filled, or is there already: a view, or what another run has made. What is only saved may be left
/// out; the op's cost is then that of a run that keeps nothing.
void OutputJudge::judge_filled(StepId s, const Op& op) {
  const Step& step = schedule_[s];
  for (const TensorId t : op.outputs) {
    if (graph_[t].bytes == Bytes{0} || std::ranges::find(op.saved, t) != op.saved.end()) continue;
    const StorageId storage = graph_[t].storage;
    Bytes filled;
    for (const Slice& slice : {step.writes, step.allocates}) {
      for (const BufferId b : schedule_.buffers_in(slice)) {
        if (walk_.storage_of(b) == storage) filled += schedule_[b].range_length;
      }
    }
    if (filled >= graph_[t].bytes) continue;
    if (filled == Bytes{0} && walk_.is_live(t, step)) continue;
    report(Rule::wrong_output, s, text(s) + " makes '" + graph_[t].name + "', but fills no buffer with all of it");
  }
}

/// Another tensor in a buffer that is only read.
void OutputJudge::judge_views(StepId s, const Op& op) {
  const Step& step = schedule_[s];
  for (const TensorId t : op.outputs) {
    const StorageId storage = graph_[t].storage;
    for (const BufferId b : schedule_.buffers_in(step.reads)) {
      if (walk_.storage_of(b) != storage || !walk_.belongs(schedule_[b], step)) continue;
      HeldTensors& tensors = holdings_[b].tensors;
      if (std::ranges::find(tensors, t) == tensors.end()) tensors.push_back(t);
    }
  }
}

/// With these outputs of the step's op, or in place.
void OutputJudge::fill_output(StepId s, BufferId b, HeldTensors tensors) {
  const Step& step = schedule_[s];
  const Buffer& buffer = schedule_[b];
  const TensorKind kind = graph_[buffer.tensor].kind;
  if (tensors.empty()) tensors = {buffer.tensor};                                                  // an update in place
  const bool is_approximate = kind == TensorKind::parameter_gradient && holdings_[b].approximate;  // a sum stays one
  HeldValue& held = holdings_.fill(s, b, std::move(tensors));
  held.approximate = is_approximate;
  if (kind == TensorKind::parameter || kind == TensorKind::optimizer_state) versions_.note_updated(s, b);
  if (kind != TensorKind::parameter_gradient || walk_.is_update(s)) return;  // summed over ranks it is of the same ones
  if (!held.sums.all_have(0) && held.version != walk_.update_of(step.micro_batch)) {
    report(Rule::wrong_value, s, b, "adds to what update " + std::to_string(held.version) + " takes, in");
  }
  held.version = walk_.update_of(step.micro_batch);
  if (!held.sums.add(contribution(step, buffer.tensor))) {
    report(Rule::repeated, s, b, "adds its contribution a second time to");
  }
}

/// Which of the contributions to the gradient the step's is.
std::size_t OutputJudge::contribution(const Step& step, TensorId gradient) const {
  const std::vector<OpId>& makers = walk_.makers[gradient.index];
  const auto maker = std::ranges::lower_bound(makers, step.op);
  const bool is_maker = maker != makers.end() && *maker == step.op;
  const std::size_t among = is_maker ? static_cast<std::size_t>(maker - makers.begin()) : makers.size();
  return (std::size_t{step.replica} * schedule_.micro_batches + step.micro_batch) * (makers.size() + 1) + among;
}

}  // namespace

std::unique_ptr<Judge> output_judge(Walk& walk, VersionJudge& versions) {
  return std::make_unique<OutputJudge>(walk, versions);
}

}  // namespace plimsoll
