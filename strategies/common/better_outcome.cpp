#include "strategies/common/better_outcome.h"

namespace plimsoll {

bool is_better(const TapeOutcome& a, const TapeOutcome& b) {
  const PlannedTape *tape_a = std::get_if<PlannedTape>(&a), *tape_b = std::get_if<PlannedTape>(&b);
  if (tape_a != nullptr && tape_b != nullptr) return tape_a->makespan < tape_b->makespan;
  if (tape_a != nullptr || tape_b != nullptr) return tape_a != nullptr;
  const std::optional<Bytes> least_a = std::get<Infeasible>(a).smallest, least_b = std::get<Infeasible>(b).smallest;
  return least_a && (!least_b || *least_a < *least_b);
}

}  // namespace plimsoll
