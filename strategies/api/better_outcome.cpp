#include "strategies/api/better_outcome.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

bool is_better(const TapeOutcome& a, const TapeOutcome& b) {
  const PlannedTape *tape_a = std::get_if<PlannedTape>(&a), *tape_b = std::get_if<PlannedTape>(&b);
  if (tape_a != nullptr && tape_b != nullptr) return tape_a->makespan < tape_b->makespan;
  if (tape_a != nullptr || tape_b != nullptr) return tape_a != nullptr;
  const std::optional<Bytes> least_a = std::get<Infeasible>(a).smallest, least_b = std::get<Infeasible>(b).smallest;
  return least_a && (!least_b || *least_a < *least_b);
}

void keep_better(std::vector<TapeOutcome>& best, std::vector<TapeOutcome> others) {
  EXPECTS(best.size() == others.size());
  for (std::size_t b = 0; b < best.size(); ++b) {
    if (is_better(others[b], best[b])) best[b] = std::move(others[b]);
  }
}

std::vector<TapeOutcome> faster_outcomes(std::vector<TapeOutcome> own, std::vector<TapeOutcome> others) {
  EXPECTS(own.size() == others.size());
  for (std::size_t b = 0; b < own.size(); ++b) {
    auto* tape = std::get_if<PlannedTape>(&others[b]);
    if (tape == nullptr) continue;
    const auto* slower = std::get_if<PlannedTape>(&own[b]);
    tape->gap.reset();
    if (slower != nullptr && slower->gap) {
      tape->gap = std::max(0.0, 1 - (1 - *slower->gap) * (slower->makespan / tape->makespan));
    }
  }
  keep_better(own, std::move(others));
  return own;
}

}  // namespace plimsoll
