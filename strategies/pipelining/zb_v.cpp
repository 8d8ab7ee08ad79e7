// The strategy `zb_v`: two parts of the model a device, placed as a V, and zero bubble found by a heuristic within a
// limit of memory. With F = B = W, free transfers and m >= 2p there is none.

#include <fmt/format.h>

#include <cmath>

#include "sim/io/input_error.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> zb_v_partition(const Problem& problem, const LimitedOptions& options,
                                             std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_v", 2);
  const std::vector<std::uint32_t> rank_of = v_shape(ranks);
  const PartCosts costs = part_costs(problem, cut_for(problem, options, "zb_v", rank_of, true));
  const auto order_within = [&](double limit) {
    return v_shape_search(costs, problem.micro_batches, limits_of(costs, rank_of, limit));
  };
  const std::vector<std::int64_t> limits = limits_of(costs, rank_of, options.limit);
  const std::optional<PipelineOrder> order =
      asked_order(options, costs, problem.micro_batches,
                  [&](const PartCosts& given) { return v_shape_search(given, problem.micro_batches, limits); });
  if (!order) {
    double below = 0, enough = least_limit(costs, rank_of);  // for a micro-batch, and not always for the heuristic
    while (!order_within(enough)) {
      below = enough;
      enough = std::ceil(1.1e4 * enough) / 1e4;
    }
    while (below > 0 && enough - below > 1.5e-4) {
      const double middle = std::round(5e3 * (below + enough)) / 1e4;
      (order_within(middle) ? enough : below) = middle;
    }
    throw InputError(
        fmt::format("zb_v: limit={} is too small for one micro-batch; the least is {}", options.limit, enough));
  }
  return pipeline(problem, options, "zb_v", *order, budgets);
}

constexpr auto zb_v_options = options_of<LimitedOptions>(stages_option, cut_option, shared_updates_option,
                                                         work_conserving_option, limit_option, orders_option);

}  // namespace

extern constinit const StrategyInfo zb_v_strategy{
    .name = "zb_v",
    .family = Family::pipelining,
    .summary = "zero bubble with two parts a device, down and up the devices as a V, within a limit of memory",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_v_options,
    .kind = PartitionStrategy{.partition = by_options<zb_v_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
