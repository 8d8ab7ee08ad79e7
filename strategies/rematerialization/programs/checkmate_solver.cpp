#include "strategies/rematerialization/programs/checkmate_solver.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "sim/core/tolerance.h"
#include "strategies/api/front.h"
#include "strategies/rematerialization/exact/exact.h"

namespace plimsoll {
namespace {

/// What cannot be made again stays until its last reader.
void keep_what_must_stay(const OpModel& model, Kept& kept) {
  for (std::size_t v = 0; v < model.values.size(); ++v) {
    const ModelValue& value = model.values[v];
    if (!value.maker) {
      for (std::vector<bool>& stage : kept) stage[v] = true;
      continue;
    }
    if (!model.ops[*value.maker].once || value.readers.empty()) continue;
    for (std::size_t t = *value.maker + 1; t <= value.readers.back(); ++t) kept[t][v] = true;
  }
}

/// One stage: which ops run, and which of them save.
struct OneStage {
  std::vector<bool> runs, saves;
};

bool is_made(const OpModel& model, const OneStage& stage, std::size_t v) {
  const std::uint32_t maker = *model.values[v].maker;
  if (!stage.runs[maker]) return false;
  const std::vector<std::uint32_t>& always = model.ops[maker].ways.back().makes;
  return stage.saves[maker] || std::ranges::find(always, v) != always.end();
}

/// Makes the value run in the stage; false if that is not allowed.
bool make(const OpModel& model, OneStage& stage, std::size_t t, std::size_t v) {
  const std::uint32_t maker = *model.values[v].maker;
  if (maker > t || (model.ops[maker].once && maker != t)) return false;
  stage.runs[maker] = true;
  const std::vector<std::uint32_t>& always = model.ops[maker].ways.back().makes;
  if (std::ranges::find(always, v) == always.end()) stage.saves[maker] = true;
  return true;
}

}  // namespace

std::optional<OpSequence> least_runs(const OpModel& model, Kept kept) {
  keep_what_must_stay(model, kept);
  OpSequence sequence;
  for (std::size_t t = 0; t < model.ops.size(); ++t) {
    OneStage stage{std::vector<bool>(t + 1, false), std::vector<bool>(t + 1, false)};
    stage.runs[t] = true;
    for (std::size_t v = 0; v < model.values.size(); ++v) {
      const std::optional<std::uint32_t> maker = model.values[v].maker;
      if (!maker || !kept[t + 1][v] || kept[t][v]) continue;
      if (*maker > t || !make(model, stage, t, v)) kept[t + 1][v] = false;
    }
    for (std::size_t k = t + 1; k-- > 0;) {
      if (!stage.runs[k]) continue;
      for (const std::uint32_t v : model.ops[k].reads) {
        if (kept[t][v] || is_made(model, stage, v)) continue;
        if (!make(model, stage, t, v)) return std::nullopt;
      }
    }
    for (std::size_t k = 0; k <= t; ++k) {
      if (!stage.runs[k]) continue;
      const bool nothing = model.ops[k].ways.size() > 1 && !stage.saves[k];
      sequence.push_back({model.ops[k].id, nothing ? Saving::nothing : Saving::keep});
    }
  }
  if (!is_runnable(model, sequence)) return std::nullopt;
  return sequence;
}

bool is_runnable(const OpModel& model, const OpSequence& sequence) {
  std::vector<std::size_t> number;
  for (std::size_t o = 0; o < model.ops.size(); ++o) {
    number.resize(std::max<std::size_t>(number.size(), model.ops[o].id.index + 1));
    number[model.ops[o].id.index] = o;
  }
  std::vector<bool> there(model.values.size(), false), ran(model.ops.size(), false);
  for (std::size_t v = 0; v < there.size(); ++v) there[v] = !model.values[v].maker;
  for (const OpRun& run : sequence) {
    const std::size_t o = number.at(run.op.index);
    const ModelOp& op = model.ops[o];
    if ((op.once && ran[o]) || std::ranges::any_of(op.reads, [&](std::uint32_t v) { return !there[v]; })) return false;
    ran[o] = true;
    const OpWay& way = run.saving == Saving::nothing ? op.ways.back() : op.ways.front();
    for (const std::uint32_t v : way.clears) there[v] = false;
    for (const std::uint32_t v : way.makes) there[v] = true;
  }
  return std::ranges::all_of(ran, [](bool r) { return r; });
}

CheckmateSolver::CheckmateSolver(const PartTask& task, OpModel model, CheckmateEffort effort, PlanPool known)
    : task_(task), model_(std::move(model)), effort_(effort), known_(std::move(known)) {
  Seconds once;
  for (const ModelOp& op : model_.ops) {
    once += op.ways.front().time;
    Seconds least = op.ways.front().time;
    if (op.ways.size() > 1 && op.sink) least = std::min(least, op.ways.back().time);
    for (const OpAlternative& way : op.alternatives) least = std::min(least, way.time);
    work_ += least;
  }
  updates_ = planned_ops(task, store_all_ops(task)).makespan.value - repeats() * once.value;
}

TapeOutcome CheckmateSolver::solve(std::optional<Bytes> limit) {
  const Deadline deadline(effort_.limits.seconds);
  const Bytes budget = limit.value_or(Bytes{std::numeric_limits<std::int64_t>::max() / 4});
  const PlannedTape* known = known_.at(budget);
  if (known == nullptr) {
    find_smallest(deadline);
    if (budget < least_->peak) {
      const bool proven = least_stopped_.empty();
      return Infeasible{
          "no schedule that keeps the order of first runs was found" + (proven ? std::string() : "; " + least_stopped_),
          least_->peak, proven};
    }
    known = &*least_;
  }
  if (known->makespan.value <= repeats() * work_.value + updates_) return with_gap(*known, work_.value);
  const Answer answer = ask(budget, deadline.left());
  PlannedTape best = *known;
  if (answer.sequence) {
    PlannedTape made = planned_ops(task_, *answer.sequence);
    if (made.peak <= budget && made.makespan < best.makespan) best = std::move(made);
  }
  best = with_gap(std::move(best), std::max(answer.bound, work_.value));
  best.note = answer.stopped;
  return best;
}

std::vector<Bytes> CheckmateSolver::candidates() {
  const Deadline deadline(effort_.limits.seconds);
  const Bends bends = bends_of([&](std::optional<Bytes> budget) {
    return deadline.passed() ? TapeOutcome(Infeasible{"", std::nullopt, false}) : solve(budget);
  });
  if (bends.are_all) return bends.budgets;
  find_smallest(Deadline(effort_.limits.seconds));
  std::vector<Bytes> budgets = known_.budgets();
  budgets.push_back(least_->peak);
  std::ranges::copy(bends.budgets, std::back_inserter(budgets));
  return budgets;
}

PlannedTape CheckmateSolver::with_gap(PlannedTape plan, double bound) const {
  const double least = repeats() * bound + updates_;
  plan.gap = relative_gap(plan.makespan, Seconds{least}, model_tolerance);
  return plan;
}

CheckmateSolver::Answer CheckmateSolver::ask(Bytes budget, double seconds) const {
  if (model_.ops.size() > effort_.most_ops) {
    return {.stopped =
                fmt::format("no integer program: {} ops, more than most_ops={}", model_.ops.size(), effort_.most_ops),
            .refused = true};
  }
  const CheckmateModel program(model_, budget, effort_.formulation);
  if (!program.is_complete()) {
    return {.stopped = fmt::format("no integer program: that of {} ops has more than {} nonzeros", model_.ops.size(),
                                   most_nonzeros),
            .refused = true};
  }
  std::vector<double> start;
  const SequencedTape* known = known_.at(budget);
  if (known != nullptr && effort_.formulation == Formulation::tight) {
    start = program.solution(known->sequence).value_or(std::vector<double>{});
  }
  MilpLimits limits = effort_.limits;
  limits.seconds = seconds;
  const MilpResult found = solve_milp(program.program(), start, limits);
  Answer answer;
  answer.bound = program.seconds(found.bound).value;
  answer.infeasible = found.end == MilpResult::End::infeasible;
  answer.stopped = why_stopped(found.end, effort_.limits);
  if (found.values.empty()) return answer;
  OpSequence sequence = program.plan(found.values);
  if (is_runnable(model_, sequence)) answer.sequence = std::move(sequence);
  return answer;
}

/// What no order of first runs can do with less.
Bytes CheckmateSolver::least_possible(const Deadline& deadline) const {
  const auto has_alternatives = [](const ModelOp& op) { return !op.alternatives.empty(); };
  if (std::ranges::none_of(model_.ops, has_alternatives)) {
    SearchLimits limits;
    limits.seconds = deadline.left() / 4;  // the programs need the rest
    return smallest_schedule(task_, model_, known_, limits).below;
  }
  OpModel least = model_;
  for (ModelOp& op : least.ops) {
    for (const OpAlternative& way : op.alternatives) {
      op.accumulate_workspace = std::min(op.accumulate_workspace, way.workspace);
      for (OpWay& own : op.ways) own.workspace = std::min(own.workspace, way.workspace);
    }
  }
  return least_imaginable(least);
}

/// By halving.
void CheckmateSolver::find_smallest(const Deadline& deadline) {
  if (least_) return;
  least_ = *known_.at(known_.least());
  Bytes low = least_possible(deadline);
  Bytes next = low;
  while (low < least_->peak) {
    const Answer answer = ask(next, deadline.left() / 2);
    if (!answer.infeasible && !answer.stopped.empty()) least_stopped_ = answer.stopped;
    constexpr double too_little = 0.1;  // seconds
    if (answer.refused || deadline.left() < too_little) return;
    if (answer.sequence) {
      PlannedTape made = planned_ops(task_, *answer.sequence);
      if (made.peak <= next) {
        least_ = std::move(made);
        next = Bytes{low.count + (least_->peak.count - low.count) / 2};
        continue;
      }
    }
    low = next + Bytes{1};
    next = Bytes{low.count + (least_->peak.count - low.count) / 2};
  }
}

}  // namespace plimsoll
