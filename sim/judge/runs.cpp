// The judge of runs: every op runs for each micro-batch and replica, again only where it may, and says so. Rules:
// incomplete for an op that never runs, repeated, malformed for a step that is called what it is not, or an update that
// keeps other states than the group of its parameter has.

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "sim/core/collective_op.h"
#include "sim/core/names.h"
#include "sim/judge/judges.h"

namespace plimsoll {
namespace {

/// Whether a pattern of `*`, `?` and `[a-z]` is of the whole name. Not the function that made the groups.
bool fits_name(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() == '*') {
    return fits_name(pattern.substr(1), name) || (!name.empty() && fits_name(pattern, name.substr(1)));
  }
  if (name.empty()) return false;
  std::size_t width = 1;
  bool fits = pattern.front() == '?' || pattern.front() == name.front();
  if (const std::size_t end = pattern.find(']', 2); pattern.front() == '[' && end != std::string_view::npos) {
    const bool is_negated = pattern[1] == '!';
    bool any = false;
    for (std::size_t k = is_negated ? 2 : 1; k < end; ++k) {
      const bool is_range = k + 2 < end && pattern[k + 1] == '-';
      any = any || (pattern[k] <= name.front() && name.front() <= pattern[is_range ? k + 2 : k]);
      if (is_range) k += 2;
    }
    fits = any != is_negated;
    width = end + 1;
  }
  return fits && fits_name(pattern.substr(width), name.substr(1));
}

class RunJudge final : public Judge {
 public:
  using Judge::Judge;
  void runs_op(StepId s) override;
  void end() override;

 private:
  void judge_label(StepId s, bool repeats);
  void judge_states(StepId s);

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
  if (is_update && !collective_of(op) && !schedule_.parameter_groups.empty()) judge_states(s);
}

/// By names alone. Updates of another optimizer, which a transform made, say so.
void RunJudge::judge_states(StepId s) {
  const Op& op = graph_[schedule_[s].op];
  for (const auto& [key, value] : op.attributes) {
    if (key == "optimizer" && !from_name<Optimizer>(value)) return;
  }
  for (const TensorId p : op.mutates) {
    if (graph_[p].kind != TensorKind::parameter) continue;
    const std::string& name = graph_[p].name;
    const auto group = std::ranges::find_if(schedule_.parameter_groups, [&](const ParameterGroup& each) {
      return each.pattern == name || fits_name(each.pattern, name);
    });
    const Optimizer by = group == schedule_.parameter_groups.end() ? schedule_.optimizer : group->optimizer;
    const std::ptrdiff_t asked = by == Optimizer::adam ? 2 : by == Optimizer::momentum ? 1 : 0;
    const std::ptrdiff_t kept = std::ranges::count_if(op.mutates, [&](TensorId t) {
      return graph_[t].name == "state 0 of " + name || graph_[t].name == "state 1 of " + name;
    });
    if (kept == asked) continue;
    report(Rule::malformed, s,
           text(s) + " keeps " + std::to_string(kept) + " states of '" + name + "', which '" +
               std::string(written(by)) + "' gives " + std::to_string(asked));
  }
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
