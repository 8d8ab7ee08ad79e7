#include "strategies/pipelining/asynchronous.h"

#include <fmt/format.h>

#include "sim/io/input_error.h"

namespace plimsoll {

std::vector<PartitionOutcome> asynchronous_1f1b(const Problem& problem, const LineOptions& options,
                                                std::string_view strategy, std::uint32_t ranks, Updates updates,
                                                std::span<const std::optional<Bytes>> budgets) {
  if (problem.gradients == Gradients::existing) {
    throw InputError(
        fmt::format("{}: gradients that exist from the start would have to be cleared between the updates of an "
                    "iteration, which no op does; give --gradients new",
                    strategy));
  }
  const PipelineOrder order = one_forward_one_backward_order(problem.micro_batches, ranks);
  return pipeline(problem, options, strategy, order, budgets, updates);
}

}  // namespace plimsoll
