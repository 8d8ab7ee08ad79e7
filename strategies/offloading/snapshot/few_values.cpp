#include "strategies/offloading/snapshot/few_values.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "sim/core/expects.h"
#include "sim/core/tolerance.h"
#include "strategies/list.h"
#include "strategies/models/chain_pass.h"
#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"

namespace plimsoll {
namespace {

/// Levels of memory, of plain training's, at which is searched: however many budgets are asked, not more often.
constexpr std::int64_t searched_levels = 100;
/// So many of them are levels at which programs are asked, too.
constexpr std::int64_t program_levels = 20;
/// Of an instant, those that are tried as plans.
constexpr std::size_t tried_trades = 8;
/// Instants at which is branched, those that prove the most.
constexpr std::size_t branched_instants = 3;
/// Programs are not asked where a plan is proven to be as close to the best, at effort 1: of few ops, and of more.
constexpr double close_to_best = 0.0025, close_of_more = 0.005;
/// Of programs at effort 1: nonzeros, nodes of branch and bound; likewise.
constexpr std::size_t most_program_nonzeros = 20'000, most_nonzeros_of_more = 30'000;
constexpr int most_program_nodes = 60, most_nodes_of_more = 10;
/// Instants of the programs, one after the other: those that prove the most, and as many evenly apart.
constexpr std::size_t program_instants[] = {6, 12, 20, 40};

constexpr Seconds no_time_at_all{std::numeric_limits<double>::infinity()};

}  // namespace

std::unique_ptr<FewValues> FewValues::make(const PartTask& task, std::vector<SnapshotPlans*> plans, std::int64_t effort,
                                           std::size_t small) {
  if (plans.empty() || task.part().ops.size() > most_ops_of_programs || task.problem.micro_batches > 1) return nullptr;
  return std::unique_ptr<FewValues>(new FewValues(task, std::move(plans), effort, task.part().ops.size() <= small));
}

FewValues::FewValues(const PartTask& task, std::vector<SnapshotPlans*> plans, std::int64_t effort, bool is_small)
    : task_(task),
      plans_(std::move(plans)),
      effort_(effort),
      is_small_(is_small),
      peak_(plain_training_peak(task)),
      model_(snapshot_model(task.problem, task.part().device, {.one_call = false})) {
  const OpModel& ops = plans_.front()->model();
  for (std::uint32_t o = 0; o < ops.ops.size(); ++o) number_[ops.ops[o].id.index] = o;
}

SnapshotCuts& FewValues::cuts(std::uint32_t op) {
  std::unique_ptr<SnapshotCuts>& made = cuts_[op];
  if (!made) made = std::make_unique<SnapshotCuts>(model_, instant_at(model_, {op}));
  return *made;
}

bool FewValues::is_close(const Answer& answer) const {
  const double open = (is_small_ ? close_to_best : close_of_more) / static_cast<double>(effort_);
  return answer.plan && answer.plan->makespan <= (1 + open) * answer.bound;
}

/// All plans of strategies that look at the whole iteration, once. On graphs the first has those of the second.
const PlannedTape* FewValues::others(Bytes budget) {
  if (!others_) {
    others_.emplace();
    for (const StrategyInfo* other : {&rockmate_strategy, &greedy_recompute_strategy}) {
      const Options options(other->options);
      std::vector<std::optional<Bytes>> budgets;
      std::ranges::copy(other->candidates(task_, options), std::back_inserter(budgets));
      for (TapeOutcome& outcome : other->tapes(task_, options, budgets, nullptr)) {
        others_->add(plan_in(std::move(outcome)));
      }
    }
    if (!others_->empty()) least_ = others_->least();
  }
  return others_->at(budget);
}

/// What each proves, the most first.
std::vector<FewValues::Proven> FewValues::instants(Bytes budget) {
  std::vector<Proven> proven;
  for (std::uint32_t o = 0; o < model_.ops.size(); ++o) {
    if (!model_.ops[o].is_there) continue;
    const InstantBound bound =
        is_small_ ? cuts(o).bound(budget) : SnapshotCuts(model_, instant_at(model_, {o})).bound(budget);
    proven.push_back({bound.needs ? no_time_at_all : bound.extra, o});
  }
  std::ranges::stable_sort(proven, std::ranges::greater{}, &Proven::extra);
  return proven;
}

/// Trades that fit at the instant are plans where they fit elsewhere, too, or can be made to.
void FewValues::branch(Answer& answer, Bytes budget, std::span<const Proven> proven) {
  constexpr std::size_t most_nodes = 1000;
  const SnapshotPlans& plans = *plans_.front();
  const OpModel& ops = plans.model();
  for (const auto& [extra, instant] : proven.first(std::min(proven.size(), branched_instants))) {
    if (answer.plan && reaches(answer.plan->makespan, answer.bound)) return;
    BranchLimits limits{.nodes = most_nodes * static_cast<std::size_t>(effort_), .found = tried_trades};
    if (answer.plan) limits.enough = answer.plan->makespan - model_.base;
    const BranchedBound found = branched_bound(cuts(instant), model_, budget, limits);
    answer.bound = std::max(answer.bound, model_.base + found.extra);
    if (!number_.contains(instant)) continue;
    for (const SnapshotCut& cut : found.found) {
      if (answer.plan && model_.base + cut.extra >= answer.plan->makespan) break;
      Evicted evicted(ops.values.size(), false);
      for (const ModelOp& op : ops.ops) {
        if (!cut.again[op.id.index]) continue;
        for (const std::uint32_t v : op.ways.front().makes) evicted[v] = true;
      }
      const std::optional<OpSequence> sequence = recompute_order_at(ops, evicted, number_.at(instant));
      if (sequence) keep_faster<PlannedTape>(answer.plan, plans.fitting(*sequence, budget));
    }
  }
}

/// The program's solution also as a plan.
InstantsPlan FewValues::asked(Answer& answer, Bytes budget, const InstantsProgram& program, int nodes) const {
  constexpr double a_day = 86'400;  // more than any of them takes: nodes are the limit
  const SnapshotPlans& plans = *plans_.front();
  const Seconds known = answer.plan ? answer.plan->makespan - model_.base : no_time_at_all;
  InstantsPlan found = instants_plan(program, budget, known, plans.model(),
                                     {.seconds = a_day, .nodes = nodes * static_cast<int>(effort_)});
  answer.bound = std::max(answer.bound, model_.base + found.extra);
  if (found.sequence && !is_runnable(plans.model(), *found.sequence)) found.sequence.reset();
  if (found.sequence) keep_faster<PlannedTape>(answer.plan, plans.fitting(*found.sequence, budget));
  return found;
}

/// The op at whose first run the most is above the budget, of those that each of the instants needs or that need it.
std::optional<OpId> FewValues::fullest_between(std::span<const OpId> instants, const OpSequence& sequence,
                                               Bytes budget) const {
  std::vector<bool> may(model_.ops.size());
  for (std::size_t o = 0; o < may.size(); ++o) may[o] = model_.ops[o].is_there && !model_.ops[o].saves;
  for (const OpId at : instants) {
    const std::vector<Side> side = instant_at(model_, at).side;
    for (std::size_t o = 0; o < may.size(); ++o) may[o] = may[o] && (side[o] == Side::before || side[o] == Side::after);
  }
  std::optional<OpId> fullest;
  const std::vector<MemoryOfRun> memory = memory_of_runs(plans_.front()->model(), sequence);
  for (std::size_t r = 0; r < sequence.size(); ++r) {
    const OpId op = sequence[r].op;
    if (may[op.index] && memory[r].during > budget) {
      budget = memory[r].during;
      fullest = op;
    }
    may[op.index] = false;  // it is no first run any more
  }
  return fullest;
}

/// The instant that proves the most, then ever one more: where what the last program has chosen does not fit.
void FewValues::ask_chosen(Answer& answer, Bytes budget, std::span<const Proven> proven) {
  const auto may_be = [&](const Proven& each) { return !model_.ops[each.op].saves; };
  std::vector<OpId> some;
  const auto first = std::ranges::find_if(proven, may_be);
  if (first != proven.end()) some.push_back({first->op});
  while (!some.empty() && !is_close(answer)) {
    const InstantsProgram program(model_, some);
    if (program.nonzeros() > most_nonzeros_of_more * static_cast<std::size_t>(effort_)) return;
    const InstantsPlan found = asked(answer, budget, program, most_nodes_of_more);
    if (!found.sequence) return;
    const std::optional<OpId> next = fullest_between(some, *found.sequence, budget);
    if (!next) return;
    some.insert(std::ranges::lower_bound(some, *next), *next);
  }
}

/// Ever more instants, until a program is not solved.
void FewValues::ask_programs(Answer& answer, Bytes budget, std::span<const Proven> proven) {
  std::vector<double> weights(model_.ops.size(), 0.001 * model_.base.value + std::numeric_limits<double>::min());
  for (const auto& [extra, op] : proven) weights[op] += std::min(extra, model_.base).value;
  const std::vector<OpId> path = heaviest_path(model_, weights);
  std::size_t before = 0;
  for (const std::size_t count : program_instants) {
    if (is_close(answer)) return;
    std::vector<OpId> some = path;
    std::ranges::stable_sort(some, std::ranges::greater{}, [&](OpId op) { return weights[op.index]; });
    some.resize(std::min(some.size(), count));
    for (std::size_t k = 0; k < path.size(); ++k) {
      if (path.size() <= count || k * count / path.size() != (k + 1) * count / path.size()) some.push_back(path[k]);
    }
    std::ranges::sort(some);
    some.erase(std::unique(some.begin(), some.end()), some.end());
    if (some.size() == before) return;
    before = some.size();
    const InstantsProgram program(model_, some);
    if (program.nonzeros() > most_program_nonzeros * static_cast<std::size_t>(effort_)) return;
    const InstantsPlan found = asked(answer, budget, program, most_program_nodes);
    if (found.end != MilpResult::End::optimal && found.end != MilpResult::End::infeasible) return;
  }
}

/// What is proven is of backwards stage by stage.
void FewValues::heed_one_call(Answer& answer) {
  if (!answer.plan || answer.plan->tape.backprop != Backprop::in_one_call) return;
  answer.bound = std::min(answer.bound, answer.plan->makespan);
}

Seconds FewValues::bound_of_instants(Bytes budget) const {
  Seconds bound = model_.base;
  for (const SnapshotPlans* plans : plans_) bound = std::max(bound, plans->bound(budget));
  return bound;
}

/// By what takes no search.
FewValues::Answer& FewValues::begun(Bytes budget) {
  const auto [at, is_new] = answers_.try_emplace(budget);
  Answer& answer = at->second;
  if (!is_new) return answer;
  answer.bound = bound_of_instants(budget);
  for (SnapshotPlans* plans : plans_) {
    if (const PlannedTape* plan = plans->best(budget)) keep_faster(answer.plan, std::optional(*plan));
  }
  heed_one_call(answer);
  return answer;
}

/// What no program is needed for. Branches only where there is a plan to begin with.
FewValues::Answer& FewValues::branched(Bytes budget) {
  Answer& answer = begun(budget);
  if (answer.state >= Answer::branched) return answer;
  answer.state = Answer::branched;
  if (!is_small_ || (answer.plan && reaches(answer.plan->makespan, answer.bound))) return answer;
  if (const PlannedTape* plan = others(budget)) keep_faster(answer.plan, std::optional(*plan));
  const std::vector<Proven> proven = instants(budget);
  if (!proven.empty()) answer.bound = std::max(answer.bound, model_.base + proven.front().extra);
  if (answer.plan) branch(answer, budget, proven);
  heed_one_call(answer);
  return answer;
}

FewValues::Answer& FewValues::solved(Bytes budget) {
  Answer& answer = branched(budget);
  if (answer.state == Answer::solved) return answer;
  answer.state = Answer::solved;
  const auto ask = is_small_ ? &FewValues::ask_programs : &FewValues::ask_chosen;
  if (answer.plan && !is_close(answer)) (this->*ask)(answer, budget, instants(budget));
  heed_one_call(answer);
  EXPECTS(!answer.plan || answer.plan->makespan >= (1 - float_tolerance) * answer.bound);
  return answer;
}

/// Of `count` levels of memory up to plain training's.
Bytes FewValues::level(std::int64_t k, std::int64_t count) const {
  return Bytes{(peak_.count * k + count / 2) / count};  // as shares of it are rounded
}

/// The least level that is not below.
std::optional<Bytes> FewValues::level_above(Bytes budget, std::int64_t count) const {
  std::int64_t k = count;
  if (level(k, count) < budget) return std::nullopt;
  while (k > 1 && level(k - 1, count) >= budget) --k;
  return level(k, count);
}

Seconds FewValues::bound(Bytes budget) {
  Seconds bound = begun(budget).bound;
  const std::optional<Bytes> searched = is_small_ ? level_above(budget, searched_levels) : std::nullopt;
  if (searched) bound = std::max(bound, branched(*searched).bound);
  if (const std::optional<Bytes> above = level_above(budget, program_levels)) {
    bound = std::max(bound, solved(*above).bound);
  }
  return bound;
}

/// Exchanges that nothing hides keep plain training, too, from the bound. Where no bytes are short it is the best.
bool FewValues::is_as_fast_as_plain(const PlannedTape& plan) const {
  const PlannedTape* plain = plans_.front()->best(std::nullopt);
  return plain != nullptr && reaches(plan.makespan, plain->makespan);
}

const PlannedTape* FewValues::faster(Bytes budget, const PlannedTape* known) {
  const PlannedTape* best = known;
  const auto keep = [&](const PlannedTape* plan) {
    if (plan != nullptr && (best == nullptr || plan->makespan < best->makespan)) best = plan;
  };
  if (best != nullptr && (reaches(best->makespan, begun(budget).bound) || is_as_fast_as_plain(*best))) return nullptr;
  if (is_small_) {
    keep(others(budget));
  } else if (best == nullptr) {
    return nullptr;
  }
  for (std::int64_t k = searched_levels; k > 0; --k) {
    const Bytes at = level(k, searched_levels);
    if (at > budget) continue;
    const bool has_program = k % (searched_levels / program_levels) == 0;
    if (!is_small_ && reaches(best->makespan, bound_of_instants(at))) break;
    if (!is_small_ && !has_program) continue;
    const Answer& answer = has_program ? solved(at) : branched(at);
    if (!answer.plan) break;
    keep(&*answer.plan);
    if (reaches(best->makespan, answer.bound)) break;  // what is proven here holds for all lower levels, too
  }
  return best == known ? nullptr : best;
}

}  // namespace plimsoll
