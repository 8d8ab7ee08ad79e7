#include "strategies/offloading/known_plans.h"

#include "strategies/spec.h"

namespace plimsoll {

std::vector<PlannedTape> tapes_of(std::string_view spec, const PartTask& task,
                                  std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const Pass pass = parse_spec(spec, "a strategy's own plans").front();
  std::vector<PlannedTape> tapes;
  std::optional<Bytes> smallest;
  const auto add = [&](std::span<const std::optional<Bytes>> limits) {
    for (TapeOutcome& outcome : pass.strategy->tapes(task, pass.options, limits, before)) {
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

}  // namespace plimsoll
