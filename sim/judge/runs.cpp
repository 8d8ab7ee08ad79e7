// The judge of runs: every op runs for each micro-batch and replica, again only where it may, and says so. Rules:
// incomplete for an op that never runs, repeated, malformed for a step that is called what it is not.

#include <set>
#include <string_view>
#include <tuple>

#include "sim/judge/judges.h"

namespace plimsoll {
namespace {

class RunJudge final : public Judge {
 public:
  using Judge::Judge;
  void runs_op(StepId s) override;
  void end() override;

 private:
  void judge_label(StepId s, bool repeats);

  std::set<std::tuple<OpId, std::uint32_t, std::uint32_t, std::optional<MemoryId>>>
      updated_;  ///< by which op, in which update, (replica, where)
};

void RunJudge::runs_op(StepId s) {
  const Step& step = schedule_[s];
  const Op& op = graph_[step.op];
  const std::uint32_t times = ++walk_.runs_of(step);
  const bool is_update = op.phase == Phase::update;  // of each copy of the parameter
  const bool repeats = is_update
                           ? !updated_.insert({step.op, step.micro_batch, step.replica, walk_.own_memory(step)}).second
                           : times > 1;
  if (repeats && (is_update || !op.recomputable)) {
    report(Rule::repeated, s, text(s) + " repeats an op that must run once");
  }
  judge_label(s, repeats);
}

/// Metrics count what is called recomputation.
void RunJudge::judge_label(StepId s, bool repeats) {
  const Phase phase = graph_[schedule_[s].op].phase;
  const StepKind first = phase == Phase::forward  ? StepKind::forward
                         : phase == Phase::update ? StepKind::update
                                                  : StepKind::backward;
  if (schedule_[s].kind == (repeats ? StepKind::recompute : first)) return;
  report(Rule::malformed, s,
         text(s) + (repeats ? " repeats its op, but its kind is not 'recompute'"
                            : " runs its op for the first time, but its kind is not that of the op's phase"));
}

void RunJudge::end() {
  for (std::size_t o = 0; o < graph_.ops.size(); ++o) {
    const Op& op = graph_.ops[o];
    if (op.is_view) continue;
    const bool is_update = op.phase == Phase::update;
    const std::uint32_t batches = is_update ? updates_of(schedule_) : schedule_.micro_batches;
    const std::string_view what = is_update && !schedule_.updates.are_synchronous() ? "' never runs for update "
                                                                                    : "' never runs for micro-batch ";
    for (std::uint32_t batch = 0; batch < batches && !findings_.are_enough(); ++batch) {
      for (std::uint32_t replica = 0; replica < schedule_.replicas; ++replica) {
        if (walk_.runs_of(id_at<OpId>(o), batch, replica) > 0) continue;
        report(Rule::incomplete, std::nullopt, std::nullopt, "'" + op.name + std::string(what) + std::to_string(batch));
      }
    }
  }
}

}  // namespace

std::unique_ptr<Judge> run_judge(Walk& walk) {
  return std::make_unique<RunJudge>(walk);
}

}  // namespace plimsoll
