// The strategy `dualpipe_v`: DualPipe cut in half: two parts of the model a device, placed as a V, so that the two
// directions of DualPipe are the two halves of one pipeline and no device has parameters twice.
// Equation: with equal parts and free transfers the bubble is (p - 1)(F + 2B - W) at most, and no device keeps more
// than 2p + 1 of its parts' micro-batches.

#include <fmt/format.h>

#include "sim/io/input_error.h"
#include "strategies/pipelining/orders/both_ways.h"
#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> dualpipe_v_partition(const Problem& problem, const LineOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t p = ranks_of(problem, options, "dualpipe_v", 2), m = problem.micro_batches;
  if (m < 2 * p) {
    throw InputError(
        fmt::format("dualpipe_v: {} micro-batch{} on {} devices; the least is {}", m, m == 1 ? "" : "es", p, 2 * p));
  }
  return pipeline(problem, options, "dualpipe_v", dualpipe_v_order(p, m), budgets);
}

constexpr auto dualpipe_v_options =
    options_of<LineOptions>(stages_option, cut_option, shared_updates_option, work_conserving_option);

}  // namespace

PipelineOrder dualpipe_v_order(std::uint32_t p, std::uint32_t m) {
  PipelineOrder order{v_shape(p), {}, true};
  for (std::uint32_t r = 0; r < p; ++r) {
    order.turns.push_back(dualpipe_turns({{PartId{r}, PartId{2 * p - 1 - r}}, {0, 0}}, p, r, m));
  }
  return order;
}

extern constinit const StrategyInfo dualpipe_v_strategy{
    .name = "dualpipe_v",
    .family = Family::pipelining,
    .summary = "two parts a device, down and up the devices as a V, forwards and backwards of both by turns",
    .source = "DeepSeek-AI, DualPipe, 2025; cut in half: Qi, 'DualPipe could be better without the Dual', 2025",
    .chains_only = true,
    .options = dualpipe_v_options,
    .kind = PartitionStrategy{.partition = by_options<dualpipe_v_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
