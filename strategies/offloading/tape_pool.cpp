#include "strategies/offloading/tape_pool.h"

#include <algorithm>
#include <string>

#include "sim/core/expects.h"

namespace plimsoll {

void TapePool::add(PlannedTape made) {
  const auto above = std::ranges::upper_bound(tapes_, made.peak, {}, &PlannedTape::peak);
  if (above != tapes_.begin() && std::prev(above)->makespan <= made.makespan) return;
  const auto from = std::ranges::lower_bound(tapes_, made.peak, {}, &PlannedTape::peak);
  auto end = from;
  while (end != tapes_.end() && end->makespan >= made.makespan) ++end;
  tapes_.insert(tapes_.erase(from, end), std::move(made));
}

const PlannedTape* TapePool::fastest_within(std::optional<Bytes> budget) const {
  const auto above = budget ? std::ranges::upper_bound(tapes_, *budget, {}, &PlannedTape::peak) : tapes_.end();
  return above == tapes_.begin() ? nullptr : &*std::prev(above);
}

std::vector<TapeOutcome> TapePool::outcomes(std::span<const std::optional<Bytes>> budgets,
                                            std::string_view reason) const {
  EXPECTS(!tapes_.empty());
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    if (const PlannedTape* tape = fastest_within(budget)) {
      outcomes.emplace_back(*tape);
    } else {
      outcomes.emplace_back(Infeasible{std::string(reason), tapes_.front().peak});
    }
  }
  return outcomes;
}

std::vector<Bytes> TapePool::peaks() const {
  std::vector<Bytes> peaks;
  for (const PlannedTape& tape : tapes_) peaks.push_back(tape.peak);
  return peaks;
}

}  // namespace plimsoll
