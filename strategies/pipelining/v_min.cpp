// The strategy `v_min`: two parts of the model a device, placed as a V, with a third of the memory of 1f1b.

#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/orders/v_slots.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> v_min_partition(const Problem& problem, const LineOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "v_min", 2), m = problem.micro_batches;
  const PartCosts costs = part_costs(problem, cut_for(problem, options, "v_min", v_shape(ranks), true));
  const std::vector<PipelineOrder> orders = orders_beside_published(v_min_block(ranks), m);
  return pipeline(problem, options, "v_min", shortest(costs, m, orders), budgets);
}

constexpr auto v_min_options =
    options_of<LineOptions>(stages_option, cut_option, shared_updates_option, work_conserving_option);

}  // namespace

extern constinit const StrategyInfo v_min_strategy{
    .name = "v_min",
    .family = Family::pipelining,
    .summary = "two parts a device, down and up the devices as a V, with a third of 1f1b's memory",
    .source = "Qi et al., 'Pipeline parallelism with controllable memory', NeurIPS 2024",
    .chains_only = true,
    .options = v_min_options,
    .kind = PartitionStrategy{.partition = by_options<v_min_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
