#include "strategies/compose/levels/planned_parts.h"

#include <utility>

#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"

namespace plimsoll {

Plan plan_of(const Problem& problem, const PlannedParts& parts, std::optional<Bytes> budget) {
  std::variant<Schedule, std::string> schedule = lower(problem, *parts.partition, parts.tapes);
  if (const std::string* why = std::get_if<std::string>(&schedule)) throw InputError(*why);
  Plan made{
      std::move(std::get<Schedule>(schedule)), parts.peak, parts.makespan, parts.gap, parts.note, parts.candidates};
  made.schedule.budget = budget;
  return made;
}

}  // namespace plimsoll
