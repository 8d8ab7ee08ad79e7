// The strategy `rotor_floating`: weakly persistent checkpointing of a short chain (floating_table.h) as a tape.

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "sim/io/input_error.h"
#include "strategies/api/better_outcome.h"
#include "strategies/api/strategy.h"
#include "strategies/list.h"
#include "strategies/models/best_of_sequences.h"
#include "strategies/rematerialization/rotor/floating_table.h"

namespace plimsoll {
namespace {

struct RotorFloatingOptions {
  std::int64_t slots = 100;
};

SequenceFamily floating_family(const PartTask& task, const RotorFloatingOptions& options) {
  const ChainPart part = chain_part(task.problem, task.part());
  const ChainModel model = chain_model(task.problem, part);
  if (model.stages() > longest_floating_chain) {
    throw InputError(
        fmt::format("strategy 'rotor_floating' takes chains of up to {} stages, and '{}' has {}; 'rotor' "
                    "takes any",
                    longest_floating_chain, task.problem.graph.name, model.stages()));
  }
  const auto floating = std::make_shared<const FloatingTable>(model, options.slots);
  return {.name = "rotor_floating",
          .count = floating->plans() + 1,
          .sequence = [floating, stages = model.stages()](std::size_t k) {
            return k == 0 ? store_all_sequence(stages) : floating->plan(k - 1);
          }};
}

// rotor's recursion is a part of this one, but this one rounds.
Options rotor_unrounded() {
  return Options(rotor_strategy.options);
}

constexpr auto rotor_floating_options = options_of<RotorFloatingOptions>(option_of<&RotorFloatingOptions::slots>({
    .name = "slots",
    .least = 1,
    .most = 2'000,
    .help = "resolution of memory: sizes are rounded up to 1/slots of the peak of store_all (unless their common "
            "divisor is that large)",
}));

std::vector<TapeOutcome> rotor_floating_tapes(const PartTask& task, const RotorFloatingOptions& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape*) {
  return faster_outcomes(best_of_sequences(task, floating_family(task, options), budgets),
                         rotor_strategy.tapes(task, rotor_unrounded(), budgets, nullptr));
}

std::vector<Bytes> rotor_floating_candidates(const PartTask& task, const RotorFloatingOptions& options) {
  std::vector<Bytes> budgets = budgets_of_sequences(task, floating_family(task, options));
  const std::vector<Bytes> more = rotor_strategy.candidates(task, rotor_unrounded());
  budgets.insert(budgets.end(), more.begin(), more.end());
  std::ranges::sort(budgets);
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo rotor_floating_strategy{
    .name = "rotor_floating",
    .family = Family::rematerialization,
    .summary = "rotor with checkpoints that may move forward (weak persistence), for chains of up to 40 stages",
    .source =
        "Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, 'Optimal re-materialization strategies for "
        "heterogeneous chains', ACM Transactions on Mathematical Software 50(2), 2024",
    .chains_only = true,
    .options = rotor_floating_options,
    .kind =
        TapeStrategy{
            .tapes = by_options<rotor_floating_tapes>,
            .candidates = by_options<rotor_floating_candidates>,
            .plans_parts = true,
        },
    .effort = {.stages = 25},
};

}  // namespace plimsoll
