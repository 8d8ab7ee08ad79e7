// The strategy `zb_ilp`: zero bubble's best order, by an integer program that begins with zb_auto's.

#include <fmt/format.h>

#include <numeric>

#include "sim/io/input_error.h"
#include "strategies/pipelining/orders/list_order.h"
#include "strategies/pipelining/orders/order_program.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/zero_bubble_search.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

struct ZbIlpOptions : LimitedOptions {
  int nodes = 500;
};

std::string note_of(const ProgramOrder& made, double longest, int nodes) {
  const std::string found = fmt::format("the longest device takes {:.6g} s, no order less than {:.6g} s (gap {:.2f} %)",
                                        longest, made.bound, longest > 0 ? 100 * (longest / made.bound - 1) : 0);
  if (made.end == MilpResult::End::optimal) return found;
  if (made.is_too_large) return found + "; the integer program is too large to be asked";
  return found + (made.end == MilpResult::End::out_of_nodes
                      ? fmt::format("; the integer program stopped after {} nodes (nodes)", nodes)
                      : "; the integer program stopped at its limit of memory");
}

/// Of zb_auto's two orders (`orders_option`) the one whose longest device is shortest.
std::optional<PipelineOrder> shorter_start(const PartCosts& costs, std::uint32_t m,
                                           const std::vector<std::int64_t>& limits) {
  const auto search = [&](const PartCosts& given) { return zero_bubble_search(given, m, limits); };
  std::optional<PipelineOrder> best = shortest_for_any_network(costs, m, search), published = search(costs);
  const auto longest = [&](const PipelineOrder& order) { return time_order(costs, m, order).longest(); };
  return published && longest(*published) <= longest(*best) ? published : best;
}

std::vector<PartitionOutcome> zb_ilp_partition(const Problem& problem, const ZbIlpOptions& options,
                                               std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_ilp"), m = problem.micro_batches;
  std::vector<std::uint32_t> rank_of(ranks);
  std::iota(rank_of.begin(), rank_of.end(), 0U);
  return for_budgets(options, budgets, [&](const std::optional<Bytes>& budget) {
    Partition cut = cut_for(problem, options, "zb_ilp", rank_of, true, budget);
    const PartCosts costs = part_costs(problem, cut);
    const std::vector<std::int64_t> limits = limits_of(costs, rank_of, options.limit);
    std::optional<PipelineOrder> start = shorter_start(costs, m, limits);
    if (!start) start = list_order(costs, rank_of, m, true, limits, {});
    if (!start) {
      throw InputError(fmt::format("zb_ilp: limit={} is too small for one micro-batch; the least is {}", options.limit,
                                   least_limit(costs, rank_of)));
    }
    const MilpLimits work{.seconds = 86'400, .nodes = options.nodes};
    const ProgramOrder made = program_order(costs, m, *start, limits, work);
    const double longest = time_order(costs, m, made.order).longest();
    return with_turns(std::move(cut), made.order, note_of(made, longest, options.nodes));
  });
}

constexpr auto zb_ilp_options =
    options_of<ZbIlpOptions>(stages_option, cut_option, shared_updates_option, work_conserving_option, limit_option,
                             option_of<&ZbIlpOptions::nodes>({
                                 .name = "nodes",
                                 .least = 0,
                                 .most = 1e9,
                                 .help = "how many branch-and-bound nodes the integer program may search",
                             }));

}  // namespace

extern constinit const StrategyInfo zb_ilp_strategy{
    .name = "zb_ilp",
    .family = Family::pipelining,
    .summary = "zero bubble's order of the shortest longest device within a limit of memory, by an integer program",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_ilp_options,
    .kind = PartitionStrategy{.partition = by_options<zb_ilp_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
