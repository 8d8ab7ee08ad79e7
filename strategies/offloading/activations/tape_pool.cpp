#include "strategies/offloading/activations/tape_pool.h"

#include <algorithm>
#include <string>

#include "sim/core/expects.h"

namespace plimsoll {

void TapePool::add(PlannedTape made, Bytes needs) {
  EXPECTS(made.peak <= needs);
  const auto above = std::ranges::upper_bound(tapes_, needs, {}, &Kept::needs);
  if (above != tapes_.begin() && std::prev(above)->tape.makespan <= made.makespan) return;
  const auto from = std::ranges::lower_bound(tapes_, needs, {}, &Kept::needs);
  auto end = from;
  while (end != tapes_.end() && end->tape.makespan >= made.makespan) ++end;
  tapes_.insert(tapes_.erase(from, end), {needs, std::move(made)});
}

const PlannedTape* TapePool::fastest_within(std::optional<Bytes> budget) const {
  const auto above = budget ? std::ranges::upper_bound(tapes_, *budget, {}, &Kept::needs) : tapes_.end();
  return above == tapes_.begin() ? nullptr : &std::prev(above)->tape;
}

std::vector<TapeOutcome> TapePool::outcomes(std::span<const std::optional<Bytes>> budgets,
                                            std::string_view reason) const {
  EXPECTS(!tapes_.empty());
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    if (const PlannedTape* tape = fastest_within(budget)) {
      outcomes.emplace_back(*tape);
    } else {
      outcomes.emplace_back(Infeasible{std::string(reason), tapes_.front().needs});
    }
  }
  return outcomes;
}

std::vector<Bytes> TapePool::peaks() const {
  std::vector<Bytes> needs;
  for (const Kept& kept : tapes_) needs.push_back(kept.needs);
  return needs;
}

}  // namespace plimsoll
