#include "strategies/offloading/activations/known_plans.h"

#include "sim/core/expects.h"
#include "strategies/plan.h"

namespace plimsoll {
namespace {

constexpr std::string_view own_plans = "a strategy's own plans";  // where messages about a specification point to

}  // namespace

std::vector<TapeOutcome> outcomes_of(std::string_view spec, const PartTask& task,
                                     std::span<const std::optional<Bytes>> budgets) {
  return tapes_of_passes(task, parse_spec(spec, own_plans), budgets);
}

std::vector<PlannedTape> tapes_of(std::string_view spec, const PartTask& task,
                                  std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::vector<Pass> passes = parse_spec(spec, own_plans);
  EXPECTS(before == nullptr || passes.size() == 1);
  const auto made = [&](std::span<const std::optional<Bytes>> limits) {
    if (before == nullptr) return tapes_of_passes(task, passes, limits);
    return passes.front().strategy->tapes(task, passes.front().options, limits, before);
  };
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

}  // namespace plimsoll
