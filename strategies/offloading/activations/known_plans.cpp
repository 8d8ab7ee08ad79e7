#include "strategies/offloading/activations/known_plans.h"

#include <utility>

namespace plimsoll {
namespace {

/// `made` gives the outcomes of budgets.
template <class Made>
std::vector<PlannedTape> also_at_least(std::span<const std::optional<Bytes>> budgets, const Made& made) {
  std::vector<PlannedTape> tapes;
  std::optional<Bytes> smallest;
  const auto add = [&](std::span<const std::optional<Bytes>> limits) {
    for (TapeOutcome& outcome : made(limits)) {
      if (auto* tape = std::get_if<PlannedTape>(&outcome)) {
        tapes.push_back(std::move(*tape));
      } else {
        smallest = std::get<Infeasible>(outcome).smallest;
      }
    }
  };
  add(budgets);
  if (smallest) add(std::span(&smallest, 1));
  return tapes;
}

}  // namespace

std::vector<PlannedTape> known_tapes(std::span<const Pass> passes, const PartTask& task,
                                     std::span<const std::optional<Bytes>> budgets) {
  return also_at_least(
      budgets, [&](std::span<const std::optional<Bytes>> limits) { return tapes_of_passes(task, passes, limits); });
}

std::vector<PlannedTape> known_tapes(const Pass& pass, const PartTask& task,
                                     std::span<const std::optional<Bytes>> budgets, const Tape& before) {
  return also_at_least(budgets, [&](std::span<const std::optional<Bytes>> limits) {
    return pass.strategy->tapes(task, pass.options, limits, &before);
  });
}

}  // namespace plimsoll
