// The strategy `hanayo`: the model goes down and up the devices in `waves` waves, two parts a device each, so that the
// last part of the model is on the first device and nobody has parameters twice. The order is that of the best of four
// greedy rules within the memory of 1f1b's first device.

#include <fmt/format.h>

#include "sim/io/input_error.h"
#include "strategies/pipelining/orders/list_order.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

struct HanayoOptions : LimitedOptions {
  std::uint32_t waves = 1;
};

std::vector<std::uint32_t> wave_shape(std::uint32_t p, std::uint32_t waves) {
  std::vector<std::uint32_t> rank_of;
  for (std::uint32_t g = 0; g < 2 * waves * p; ++g) rank_of.push_back(g / p % 2 == 0 ? g % p : p - 1 - g % p);
  return rank_of;
}

std::vector<PartitionOutcome> hanayo_partition(const Problem& problem, const HanayoOptions& options,
                                               std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t waves = options.waves;
  const std::uint32_t p = ranks_of(problem, options, "hanayo", 2 * waves), m = problem.micro_batches;
  const std::vector<std::uint32_t> rank_of = wave_shape(p, waves);
  const bool split = is_backward_split(options);
  const PartCosts costs = part_costs(problem, cut_for(problem, options, "hanayo", rank_of, split));
  std::vector<PipelineOrder> orders;
  const std::vector<std::int64_t> limits = limits_of(costs, rank_of, options.limit);
  for (const bool forwards_first : {false, true}) {
    for (const bool fill_gaps : {false, true}) {
      auto order = list_order(costs, rank_of, m, split, limits, {forwards_first, fill_gaps});
      if (order) orders.push_back(std::move(*order));
    }
  }
  if (orders.empty()) {
    throw InputError(fmt::format("hanayo: limit={} is too small for one micro-batch; the least is {}", options.limit,
                                 least_limit(costs, rank_of)));
  }
  return pipeline(problem, options, "hanayo", shortest(costs, m, orders), budgets);
}

constexpr auto hanayo_options = options_of<HanayoOptions>(
    stages_option, cut_option, shared_updates_option, work_conserving_option, backward_option, limit_option,
    option_of<&HanayoOptions::waves>({
        .name = "waves",
        .least = 1,
        .most = 32,
        .help = "how often the model goes down and up the devices",
    }));

}  // namespace

extern constinit const StrategyInfo hanayo_strategy{
    .name = "hanayo",
    .family = Family::pipelining,
    .summary =
        "waves: two parts a device and wave, down and up the devices; less time to fill and drain, more transfers",
    .source = "Liu et al., 'Hanayo: harnessing wave-like pipeline parallelism', SC 2023",
    .chains_only = true,
    .options = hanayo_options,
    .kind =
        PartitionStrategy{.partition = by_options<hanayo_partition>, .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
