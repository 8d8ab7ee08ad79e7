#include "experiments/library/placed_plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "experiments/study/model.h"
#include "platforms/platform_file.h"
#include "sim/bound/iteration_bound.h"
#include "sim/core/tolerance.h"
#include "sim/measure/lower_bounds.h"
#include "sim/measure/metrics.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

constexpr DeviceId placed_device{0};

/// Why no instance of the library can have the plan; empty: one may.
std::string outside_of_library(const Question& question, const Problem& problem, const Schedule& schedule,
                               const Verdict& verdict) {
  if (verdict.measured > 0) return "its steps state times of their own";
  const bool is_split = problem.index && !problem.index->weight.empty();
  const bool is_another = problem.transformed || problem.of_ops || problem.mesh;
  const auto packs = [](const Pass& pass) { return pass.strategy->family == Family::compression; };
  const bool may_pack = std::ranges::any_of(question.strategy.passes, packs);  // what stages save is listed one by one
  if (is_another || is_split || may_pack) return "its strategy changes the model";
  if (schedule.micro_batches != 1 || schedule.replicas != 1) return "it has several micro-batches";
  if (schedule.optimizer != Optimizer::none) return "it has an optimizer";
  if (schedule.gradients != Gradients::fresh) return "its gradients exist before the iteration";
  if (!schedule.updates.are_synchronous()) return "it updates parameters before the iteration's end";
  if (!schedule.codecs.empty()) return "it packs values";
  if (devices_used(schedule) > 1) return "it uses several devices";
  if (stays_in(schedule, problem.graph, problem.platform) != Stays::all) {
    return "parameters, gradients or states leave the device";
  }
  return {};
}

PlanClass class_of(const Schedule& schedule) {
  const bool moves = std::ranges::any_of(schedule.steps, [](const Step& step) { return step.work.is_transfer(); });
  return moves ? PlanClass::offload : PlanClass::recompute;
}

Seconds bound_for(const Problem& problem, const Schedule& schedule, const Timeline& timeline, PlanClass plans,
                  std::optional<Bytes> budget) {
  BoundRules rules;
  if (plans == PlanClass::offload) rules.out = ways_out(problem.platform, placed_device);
  IterationBounds bounds(problem, placed_device, rules);
  const MemoryPeak& moment = timeline.peaks[problem.platform[placed_device].memory.index];
  const OpId fullest = moment.at_start ? no_op : schedule[moment.step].op;
  Seconds bound = bounds.within(budget).time;
  if (fullest != no_op) bound = std::max(bound, bounds.within(budget, fullest, timeline.makespan).time);
  return bound;
}

bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  std::error_code ignored;
  return std::filesystem::equivalent(one, other, ignored);
}

bool is_same_trace(const std::string& one, const std::string& other) {
  if (one == other) return true;
  if (is_made_by_rule(one) || is_made_by_rule(other)) return false;
  return is_same_file(find_trace(one), find_trace(other));
}

bool is_same_platform(const std::string& one, const std::string& other) {
  return one == other || is_same_file(find_platform(one), find_platform(other));
}

/// A plan that copies nothing is one of either class: the first instance of its own class, else of the other.
const LibraryInstance* instance_of(const Question& question, PlanClass plans,
                                   std::span<const LibraryInstance> library) {
  const LibraryInstance* other = nullptr;
  for (const LibraryInstance& instance : library) {
    if (!is_same_trace(instance.trace, question.trace) || !is_same_platform(instance.platform, question.platform)) {
      continue;
    }
    if (instance.plans == plans) return &instance;
    if (instance.plans == PlanClass::offload && other == nullptr) other = &instance;
  }
  return other;
}

const LibraryBudget* row_of(const LibraryInstance& instance, std::optional<Bytes> stated, Bytes peak) {
  const auto stated_row = std::ranges::find_if(
      instance.budgets, [&](const LibraryBudget& row) { return row.budget == stated && peak <= row.budget; });
  if (stated_row != instance.budgets.end()) return &*stated_row;
  const auto fits =
      std::ranges::find_if(instance.budgets, [&](const LibraryBudget& row) { return peak <= row.budget; });
  return fits == instance.budgets.end() ? nullptr : &*fits;
}

std::optional<double> over(Seconds time, Seconds than) {
  if (!(than > Seconds{0})) return std::nullopt;
  const double ratio = time / than - 1;
  return std::abs(ratio) <= model_tolerance ? 0 : ratio;
}

}  // namespace

std::optional<double> PlacedPlan::over_best(Seconds time) const {
  if (row == nullptr || !row->best) return std::nullopt;
  return over(time, row->best->time);
}

std::optional<double> PlacedPlan::over_bound(Seconds time) const {
  return bound ? over(time, *bound) : std::nullopt;
}

PlacedPlan placed(const Question& question, const Problem& problem, const Schedule& schedule, const Verdict& verdict,
                  std::span<const LibraryInstance> library) {
  PlacedPlan made;
  made.outside = outside_of_library(question, problem, schedule, verdict);
  made.plans = class_of(schedule);
  made.budget = schedule.budget ? schedule.budget : capacity_of(problem.platform);
  if (!made.outside.empty()) return made;
  made.instance = instance_of(question, made.plans, library);
  if (made.instance != nullptr) made.row = row_of(*made.instance, schedule.budget, verdict.peak);
  const PlanClass bounded = made.instance != nullptr ? made.instance->plans : made.plans;
  if (made.row != nullptr) made.budget = made.row->budget;
  if (!made.budget || verdict.peak <= *made.budget) {
    made.cuts = made.bound = bound_for(problem, schedule, verdict.timeline, bounded, made.budget);
  }
  if (made.row != nullptr && made.row->bound) made.bound = std::max(*made.bound, made.row->bound->time);
  return made;
}

}  // namespace plimsoll
