#include "strategies/compose/levels/planned_parts.h"

#include <algorithm>
#include <utility>

#include "sim/io/input_error.h"
#include "sim/lower/evaluation.h"
#include "sim/lower/lowering.h"

namespace plimsoll {

Plan plan_of(const Problem& problem, const PlannedParts& parts, std::optional<Bytes> budget) {
  std::variant<Schedule, std::string> schedule = lower(problem, *parts.partition, parts.tapes);
  if (problem.evaluation && schedule.index() == 0) {
    schedule = with_evaluation(problem, std::get<Schedule>(std::move(schedule)));
  }
  if (const std::string* why = std::get_if<std::string>(&schedule)) throw InputError(*why);
  Plan made{
      std::move(std::get<Schedule>(schedule)), parts.peak, parts.makespan, parts.gap, parts.note, parts.candidates};
  made.schedule.budget = budget;
  return made;
}

PartsOutcome with_evaluation(const Problem& problem, PlannedParts parts, std::optional<Bytes> budget) {
  const EvaluationNeeds needs = needs_of_evaluation(plan_of(problem, parts, budget).schedule, problem.platform);
  for (const Device& device : problem.platform.devices) {
    const Bytes bytes = needs.bytes[device.memory.index];
    const std::optional<Bytes> limit = budget ? budget : problem.platform[device.memory].capacity;
    if (limit && bytes > *limit) return Infeasible{"an evaluation between iterations needs more", bytes};
    parts.peak = std::max(parts.peak, bytes);
  }
  const Seconds least = 1 / (1 + parts.gap.value_or(0)) * parts.makespan;
  parts.makespan += needs.time;
  if (parts.gap && least > Seconds{}) parts.gap = parts.makespan / (least + needs.time) - 1;
  return parts;
}

}  // namespace plimsoll
