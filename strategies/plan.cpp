#include "strategies/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "sim/core/expects.h"
#include "sim/core/lowering.h"
#include "sim/io/input_error.h"
#include "strategies/common/better_outcome.h"

namespace plimsoll {
namespace {

void judge(const Problem& problem, std::span<const Pass> passes) {
  for (const Pass& pass : passes) {
    if (pass.strategy->chains_only && !problem.chain) {
      throw InputError(fmt::format("strategy '{}' works on chain traces only, and '{}' is a graph trace",
                                   pass.strategy->name, problem.graph.name));
    }
    const bool updates = std::ranges::any_of(problem.graph.ops, [](const Op& op) { return op.phase == Phase::update; });
    if (pass.strategy->needs_updates && !updates) {
      throw InputError(fmt::format("strategy '{}' places parameter updates, and there are none: give an --optimizer",
                                   pass.strategy->name));
    }
  }
}

Schedule lowered(const Problem& problem, const Partition& partition, const Tape& tape) {
  std::variant<Schedule, std::string> schedule = lower(problem, partition, std::span(&tape, 1));
  if (const std::string* why = std::get_if<std::string>(&schedule)) throw InputError(*why);
  return std::move(std::get<Schedule>(schedule));
}

/// The passes that make tapes; plain training where there are only transforms.
std::vector<Pass> memory_passes(std::span<const Pass> passes) {
  std::vector<Pass> memory(passes.begin(), passes.end());
  std::erase_if(memory, [](const Pass& pass) { return pass.strategy->family == Family::transform; });
  if (memory.empty()) memory.push_back({find_strategy("store_all"), Options({}, {})});
  return memory;
}

bool must_be_transformed(const Problem& problem, std::span<const Pass> passes) {
  return !problem.transformed && passes.front().strategy->family == Family::transform;
}

std::vector<TapeOutcome> offloaded(const PartTask&, std::span<const Pass> before, const Pass& offloading,
                                   std::span<const std::optional<Bytes>> budgets);

/// Tapes of the passes before an offloading one, from the least memory they can do with to all they want: to offload
/// from them may be faster than to do without.
std::vector<PlannedTape> tapes_to_offload(const PartTask& task, std::span<const Pass> passes, std::uint32_t levels) {
  const std::optional<Bytes> unlimited, nothing = Bytes{0};
  std::vector<PlannedTape> tapes;
  const TapeOutcome free = tapes_of_passes(task, passes, std::span(&unlimited, 1)).front();
  if (const PlannedTape* tape = std::get_if<PlannedTape>(&free)) tapes.push_back(*tape);
  const TapeOutcome none = tapes_of_passes(task, passes, std::span(&nothing, 1)).front();
  const Infeasible* why = std::get_if<Infeasible>(&none);
  if (tapes.empty() || why == nullptr || !why->smallest) return tapes;
  std::vector<std::optional<Bytes>> budgets;
  for (std::uint32_t level = 0; level < levels; ++level) {
    budgets.emplace_back(*why->smallest + range_of(tapes[0].peak - *why->smallest, {level, levels}).offset);
  }
  for (TapeOutcome& outcome : tapes_of_passes(task, passes, budgets)) {
    if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) tapes.push_back(std::move(*tape));
  }
  return tapes;
}

/// The same, and where the last of the passes moves activations, those without it: what moves parameters may make
/// its copies needless.
std::vector<PlannedTape> tapes_with_and_without(const PartTask& task, std::span<const Pass> passes,
                                                std::uint32_t levels) {
  std::vector<PlannedTape> tapes = tapes_to_offload(task, passes, levels);
  if (passes.back().strategy->family != Family::offloading) return tapes;
  const Pass plain{find_strategy("store_all"), Options({}, {})};
  const std::span<const Pass> without = passes.size() > 1 ? passes.first(passes.size() - 1) : std::span(&plain, 1);
  std::ranges::move(tapes_to_offload(task, without, levels), std::back_inserter(tapes));
  return tapes;
}

/// The passes before the offloading one make tapes for several budgets; all are offloaded from, and the fastest within
/// the asked budget is taken. What they make for the asked budget itself counts where it is left as fast as it is, so
/// that less memory is never faster.
std::vector<TapeOutcome> offloaded(const PartTask& task, std::span<const Pass> before, const Pass& offloading,
                                   std::span<const std::optional<Bytes>> budgets) {
  // A strategy with many plans chooses again for each tape; of one with a single plan the tapes' levels are all there
  // are.
  const bool has_many_plans = offloading.strategy->candidates != nullptr || !offloading.strategy->moves_parameters;
  const std::uint32_t levels = has_many_plans ? 10 : 24;
  std::vector<TapeOutcome> best;
  for (const PlannedTape& tape : tapes_with_and_without(task, before, levels)) {
    std::vector<TapeOutcome> made = offloading.strategy->tapes(task, offloading.options, budgets, &tape.tape);
    if (best.empty()) {
      best = std::move(made);
      continue;
    }
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      if (is_better(made[b], best[b])) best[b] = std::move(made[b]);
    }
  }
  std::vector<TapeOutcome> plain = tapes_of_passes(task, before, budgets);
  if (best.empty()) return plain;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    const PlannedTape* tape = std::get_if<PlannedTape>(&plain[b]);
    if (tape == nullptr || !is_better(plain[b], best[b])) continue;
    TapeOutcome made = offloading.strategy->tapes(task, offloading.options, budgets.subspan(b, 1), &tape->tape).front();
    const PlannedTape* kept = std::get_if<PlannedTape>(&made);
    if (kept != nullptr && kept->makespan <= tape->makespan) best[b] = std::move(made);
  }
  for (TapeOutcome& outcome : best) {  // a gap is that of one tape's offloading, not of the passes together
    if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) tape->gap.reset();
  }
  return best;
}

/// A gap that is nothing but the rounding of sums is none.
std::optional<double> beyond_rounding(std::optional<double> gap) {
  constexpr double rounding = 1e-12;
  return gap && *gap < rounding ? 0 : gap;
}

}  // namespace

std::vector<TapeOutcome> tapes_of_passes(const PartTask& task, std::span<const Pass> passes,
                                         std::span<const std::optional<Bytes>> budgets) {
  const Pass& last = passes.back();
  if (passes.size() == 1) return last.strategy->tapes(task, last.options, budgets, nullptr);
  const std::span<const Pass> before = passes.first(passes.size() - 1);
  if (last.strategy->family == Family::offloading) return offloaded(task, before, last, budgets);
  std::vector<TapeOutcome> tapes = tapes_of_passes(task, before, budgets);
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    const PlannedTape* made = std::get_if<PlannedTape>(&tapes[b]);
    if (made == nullptr) continue;
    tapes[b] = last.strategy->tapes(task, last.options, budgets.subspan(b, 1), &made->tape).front();
  }
  return tapes;
}

Problem transformed(const Problem& problem, std::span<const Pass> passes) {
  Problem changed = problem;
  for (const Pass& pass : passes) {
    if (problem.transformed || pass.strategy->family != Family::transform) break;
    std::variant<Problem, std::string> made = pass.strategy->transform(changed, pass.options);
    if (const std::string* why = std::get_if<std::string>(&made)) {
      throw InputError(fmt::format("{}: {}", pass.strategy->name, *why));
    }
    changed = std::get<Problem>(std::move(made));
    changed.transformed = true;
  }
  return changed;
}

std::vector<TapeOutcome> judged_tapes_of_passes(const PartTask& task, std::span<const Pass> passes,
                                                std::span<const std::optional<Bytes>> budgets) {
  judge(task.problem, passes);
  return tapes_of_passes(task, passes, budgets);
}

TapePlans tape_plans(const Problem& problem, std::span<const Pass> passes,
                     std::span<const std::optional<Bytes>> budgets) {
  EXPECTS(!passes.empty() && !must_be_transformed(problem, passes));
  TapePlans plans{one_device(problem.graph, problem.micro_batches, problem.platform.devices.size()), {}};
  plans.outcomes = judged_tapes_of_passes({problem, plans.partition, PartId{0}, 1}, memory_passes(passes), budgets);
  for (TapeOutcome& outcome : plans.outcomes) {
    if (PlannedTape* tape = std::get_if<PlannedTape>(&outcome)) tape->gap = beyond_rounding(tape->gap);
  }
  return plans;
}

Plan plan_of(const Problem& problem, const TapePlans& plans, const PlannedTape& tape, std::optional<Bytes> budget) {
  Plan made{
      lowered(problem, plans.partition, tape.tape), tape.peak, tape.makespan, tape.gap, tape.note, tape.candidates};
  made.schedule.budget = budget;
  return made;
}

std::vector<PlanOutcome> plan(const Problem& problem, std::span<const Pass> passes,
                              std::span<const std::optional<Bytes>> budgets) {
  EXPECTS(!passes.empty());
  if (must_be_transformed(problem, passes)) return plan(transformed(problem, passes), passes, budgets);
  const TapePlans plans = tape_plans(problem, passes, budgets);
  std::vector<PlanOutcome> outcomes;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    if (const Infeasible* none = std::get_if<Infeasible>(&plans.outcomes[b])) {
      outcomes.emplace_back(*none);
    } else {
      outcomes.emplace_back(plan_of(problem, plans, std::get<PlannedTape>(plans.outcomes[b]), budgets[b]));
    }
  }
  return outcomes;
}

std::vector<Bytes> front_budgets(const Problem& problem, std::span<const Pass> passes) {
  EXPECTS(!passes.empty());
  if (must_be_transformed(problem, passes)) return front_budgets(transformed(problem, passes), passes);
  const std::vector<Pass> memory = memory_passes(passes);
  judge(problem, memory);
  const Partition partition = one_device(problem.graph, problem.micro_batches, problem.platform.devices.size());
  const PartTask task{problem, partition, PartId{0}, 1};
  std::vector<Bytes> budgets;
  for (const Pass& pass : memory) {
    if (pass.strategy->candidates == nullptr) continue;
    const std::vector<Bytes> more = pass.strategy->candidates(task, pass.options);
    budgets.insert(budgets.end(), more.begin(), more.end());
  }
  if (budgets.empty()) {  // one schedule: its peak
    const std::optional<Bytes> unlimited;
    const PlanOutcome whole = plan(problem, passes, std::span(&unlimited, 1)).front();
    if (const Plan* made = std::get_if<Plan>(&whole)) budgets.push_back(made->peak);
  }
  std::ranges::sort(budgets);
  budgets.erase(std::unique(budgets.begin(), budgets.end()), budgets.end());
  return budgets;
}

}  // namespace plimsoll
