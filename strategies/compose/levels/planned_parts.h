#pragma once
// What planning ends with: a partition with a tape for each of its parts, and the schedule that these are.

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/schedule.h"
#include "strategies/api/strategy.h"

namespace plimsoll {

/// What plan_of makes a schedule of: a partition, the tape of each part, and what is promised of them.
struct PlannedParts {
  std::shared_ptr<const Partition> partition;
  std::vector<Tape> tapes;
  Bytes peak;  ///< of the fullest device
  Seconds makespan;
  std::optional<double> gap;
  std::string note = {};
  std::vector<Candidate> candidates = {};
};

using PartsOutcome = std::variant<PlannedParts, Infeasible>;

/// A schedule and what its planner promises of it.
struct Plan {
  Schedule schedule;
  Bytes peak;  ///< of the fullest device
  Seconds makespan;
  std::optional<double> gap;
  std::string note = {};                   ///< as of PlannedTape
  std::vector<Candidate> candidates = {};  ///< of a strategy that chooses among others
};

Plan plan_of(const Problem&, const PlannedParts&, std::optional<Bytes> budget);

/// What is promised of parts where the problem's evaluation, of which their planner knew nothing, comes before them.
PartsOutcome with_evaluation(const Problem&, PlannedParts, std::optional<Bytes> budget);

}  // namespace plimsoll
