// The strategy `zb_auto`: zero bubble found by the heuristic of its paper within a limit of memory (ZB-1p, ZB-2p).

#include <fmt/format.h>

#include <numeric>

#include "sim/io/input_error.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/zero_bubble_search.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> zb_auto_partition(const Problem& problem, const LimitedOptions& options,
                                                std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_auto");
  std::vector<std::uint32_t> rank_of(ranks);
  std::iota(rank_of.begin(), rank_of.end(), 0U);
  return for_budgets(options, budgets, [&](const std::optional<Bytes>& budget) {
    Partition cut = cut_for(problem, options, "zb_auto", rank_of, true, budget);
    const PartCosts costs = part_costs(problem, cut);
    const std::vector<std::int64_t> limits = limits_of(costs, rank_of, options.limit);
    const std::optional<PipelineOrder> order =
        asked_order(options, costs, problem.micro_batches,
                    [&](const PartCosts& given) { return zero_bubble_search(given, problem.micro_batches, limits); });
    if (!order) {
      throw InputError(fmt::format("zb_auto: limit={} is too small for one micro-batch; the least is {}", options.limit,
                                   least_limit(costs, rank_of)));
    }
    return with_turns(std::move(cut), *order);
  });
}

constexpr auto zb_auto_options = options_of<LimitedOptions>(stages_option, joint_cut_option, shared_updates_option,
                                                            work_conserving_option, limit_option, orders_option);

}  // namespace

extern constinit const StrategyInfo zb_auto_strategy{
    .name = "zb_auto",
    .family = Family::pipelining,
    .summary = "zero bubble found by a heuristic within a limit of memory: ZB-1p at limit 1, ZB-2p at 2",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_auto_options,
    .kind = PartitionStrategy{.partition = by_options<zb_auto_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
