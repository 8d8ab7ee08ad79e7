#include "strategies/rematerialization/rotor/rotor_floating.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/io/input_error.h"
#include "strategies/common/best_of_sequences.h"
#include "strategies/common/faster_outcomes.h"
#include "strategies/rematerialization/rotor/floating_table.h"
#include "strategies/rematerialization/rotor/rotor.h"

namespace plimsoll {
namespace {

SequenceFamily floating_family(const PartTask& task, const Options& options) {
  const ChainPart part = chain_part(task.problem, task.partition.parts[task.part.index]);
  const ChainModel model = chain_model(task.problem, part);
  if (model.stages() > longest_floating_chain) {
    throw InputError(
        fmt::format("strategy 'rotor_floating' takes chains of up to {} stages, and '{}' has {}; 'rotor' "
                    "takes any",
                    longest_floating_chain, task.problem.graph.name, model.stages()));
  }
  const auto floating = std::make_shared<const FloatingTable>(model, options.integer("slots"));
  return {.name = rotor_floating_strategy.name,
          .count = floating->plans() + 1,
          .sequence = [floating, stages = model.stages()](std::size_t k) {
            return k == 0 ? store_all_sequence(stages) : floating->plan(k - 1);
          }};
}

// rotor's recursion is a part of this one, but this one rounds.
Options rotor_unrounded() {
  return {rotor_options, {}};
}

}  // namespace

std::vector<TapeOutcome> rotor_floating_tapes(const PartTask& task, const Options& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return faster_outcomes(best_of_sequences(task, floating_family(task, options), budgets),
                         rotor_tapes(task, rotor_unrounded(), budgets, nullptr));
}

std::vector<Bytes> rotor_floating_candidates(const PartTask& task, const Options& options) {
  std::vector<Bytes> budgets = budgets_of_sequences(task, floating_family(task, options));
  const std::vector<Bytes> more = rotor_candidates(task, rotor_unrounded());
  budgets.insert(budgets.end(), more.begin(), more.end());
  std::ranges::sort(budgets);
  return budgets;
}

}  // namespace plimsoll
