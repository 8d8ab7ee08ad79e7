#include "strategies/common/faster_outcomes.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "strategies/common/better_outcome.h"

namespace plimsoll {

namespace {

TapeOutcome faster(TapeOutcome first, TapeOutcome second) {
  if (!is_better(second, first)) return first;
  if (auto* tape = std::get_if<PlannedTape>(&second)) {
    tape->gap.reset();
    const auto* slower = std::get_if<PlannedTape>(&first);
    if (slower != nullptr && slower->gap) {
      tape->gap = std::max(0.0, 1 - (1 - *slower->gap) * (slower->makespan / tape->makespan));
    }
  }
  return second;
}

}  // namespace

std::vector<TapeOutcome> faster_outcomes(std::vector<TapeOutcome> first, std::vector<TapeOutcome> second) {
  EXPECTS(first.size() == second.size());
  std::vector<TapeOutcome> result;
  for (std::size_t b = 0; b < first.size(); ++b) result.push_back(faster(std::move(first[b]), std::move(second[b])));
  return result;
}

}  // namespace plimsoll
