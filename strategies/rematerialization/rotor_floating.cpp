#include "strategies/rematerialization/rotor_floating.h"

#include <fmt/format.h>

#include <memory>

#include "sim/io/input_error.h"
#include "strategies/common/best_of_sequences.h"
#include "strategies/common/chain_pass.h"
#include "strategies/rematerialization/floating_table.h"
#include "strategies/rematerialization/rotor_least_memory.h"
#include "strategies/rematerialization/rotor_table.h"

namespace plimsoll {
namespace {

/// rotor's plans of the same slots too, and the one of least memory: never worse than any of these.
SequenceFamily family(const PartTask& task, const Options& options) {
  const ChainPart part = chain_part(task.problem, task.partition.parts[task.part.index]);
  const ChainModel model = chain_model(task.problem, part);
  if (model.stages() > longest_floating_chain) {
    throw InputError(
        fmt::format("strategy 'rotor_floating' takes chains of up to {} stages, and '{}' has {}; 'rotor' "
                    "takes any",
                    longest_floating_chain, task.problem.graph.name, model.stages()));
  }
  const std::int64_t slots = options.integer("slots");
  const auto floating = std::make_shared<const FloatingTable>(model, slots);
  const RotorTable rotor(model, slots);
  auto others = std::make_shared<std::vector<ChainSequence>>();
  others->push_back(rotor_least_memory(model).sequence);
  for (Bytes b = rotor.smallest_feasible(); b < rotor.store_all_peak(); b += rotor.slot()) {
    std::optional<ChainSequence> sequence = rotor.solve(b);
    if (sequence && *sequence != others->back()) others->push_back(std::move(*sequence));
  }
  others->push_back(store_all_sequence(model.stages()));
  return {.name = rotor_floating_strategy.name,
          .count = others->size() + floating->plans(),
          .sequence = [floating, others](std::size_t k) {
            return k < others->size() ? (*others)[k] : floating->plan(k - others->size());
          }};
}

}  // namespace

std::vector<TapeOutcome> rotor_floating_tapes(const PartTask& task, const Options& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return or_plain_training(task, budgets, best_of_sequences(task, family(task, options), budgets));
}

std::vector<Bytes> rotor_floating_candidates(const PartTask& task, const Options& options) {
  std::vector<Bytes> budgets = budgets_of_sequences(task, family(task, options));
  budgets.push_back(plain_training_peak(task));
  return budgets;
}

}  // namespace plimsoll
