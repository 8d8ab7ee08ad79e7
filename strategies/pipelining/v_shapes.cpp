// Two parts of the model a device, placed as a V: `v_half` and `v_min`.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/io/input_error.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/v_shape_search.h"
#include "strategies/pipelining/orders/v_slots.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

/// The block that is repeated.
enum class Pattern : std::uint8_t { v_half, whole, exhaustive };

struct VHalfOptions : LineOptions {
  Pattern pattern = Pattern::v_half;
  std::optional<double> limit;
};

bool is_v_half_split(const VHalfOptions& options) {
  return options.pattern != Pattern::whole;
}

/// The shortest order of any block with at most so many parts a rank, and no rank over its limit in bytes.
std::optional<PipelineOrder> best_of_blocks(const PartCosts& costs, std::uint32_t m, const std::vector<VBlock>& blocks,
                                            std::uint32_t parts, const std::vector<std::int64_t>& limits) {
  std::vector<PipelineOrder> fitting;
  for (const VBlock& block : blocks) {
    if (parts_kept(block, m) > parts) continue;
    for (PipelineOrder& order : orders_of(block, m, parts)) {
      if (!std::ranges::equal(kept_at_most(costs, order), limits, std::ranges::less_equal{})) continue;
      fitting.push_back(std::move(order));
      if (fitting.size() < 2) continue;
      if (&shortest(costs, m, fitting) != &fitting.front()) std::swap(fitting.front(), fitting.back());
      fitting.pop_back();
    }
  }
  if (fitting.empty()) return std::nullopt;
  return fitting.front();
}

PipelineOrder best_within(const PartCosts& costs, std::uint32_t m, double limit) {
  const auto p = static_cast<std::uint32_t>(costs.parts() / 2);
  const std::vector<VBlock> blocks = shifted_v_blocks(p);
  const std::vector<std::int64_t> limits = limits_of(costs, v_shape(p), limit);
  // Parts of unequal sizes may need a limit in parts that is below the one in bytes.
  for (auto parts = static_cast<std::uint32_t>(std::min(limit, 1.0) * 2 * p); parts > 1; --parts) {
    if (std::optional<PipelineOrder> found = best_of_blocks(costs, m, blocks, parts, limits)) return std::move(*found);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const VBlock& block : blocks) {
    for (const PipelineOrder& order : orders_of(block, m, parts_kept(block, m))) {
      least = std::min(least, limit_for(costs, order.rank_of, kept_at_most(costs, order)));
    }
  }
  throw InputError(fmt::format("v_half: no building block keeps as little as limit={}; the least is {}", limit, least));
}

PipelineOrder v_half_order(const PartCosts& costs, std::uint32_t m, const VHalfOptions& options) {
  const auto p = static_cast<std::uint32_t>(costs.parts() / 2);
  if (options.pattern == Pattern::exhaustive) return best_within(costs, m, options.limit.value_or(0.5));
  if (options.limit) throw InputError("v_half: only pattern=exhaustive takes a limit; other patterns have their own");
  const VBlock block = is_v_half_split(options) ? v_half_block(p) : whole_v_block(p);
  return shortest(costs, m, orders_beside_published(block, m));
}

std::vector<PartitionOutcome> v_half_partition(const Problem& problem, const VHalfOptions& options,
                                               std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "v_half", 2);
  const PartCosts costs =
      part_costs(problem, cut_for(problem, options, "v_half", v_shape(ranks), is_v_half_split(options)));
  return pipeline(problem, options, "v_half", v_half_order(costs, problem.micro_batches, options), budgets);
}

constexpr auto v_half_options = options_of<VHalfOptions>(
    stages_option, cut_option, shared_updates_option, work_conserving_option,
    option_of<&VHalfOptions::pattern>({
        .name = "pattern",
        .words = "v_half 1f1b_v exhaustive",
        .help =
            "the block that is repeated: half of 1f1b's activations; whole backwards and two thirds; or the fastest of "
            "hundreds within the limit",
    }),
    option_of<&VHalfOptions::limit>({
        .name = "limit",
        .least = 0.01,
        .most = 100,
        .help = "of pattern=exhaustive: activations that a device may keep; 1: its activations of p micro-batches, on "
                "p devices; auto: 0.5",
    }));

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

// The strategy `v_half`: two parts of the model a device, placed as a V, with half of the memory of 1f1b; with whole
// backwards and two thirds (pattern=1f1b_v); or the best of all building blocks within a limit (pattern=exhaustive).
extern constinit const StrategyInfo v_half_strategy{
    .name = "v_half",
    .family = Family::pipelining,
    .summary = "two parts a device, down and up the devices as a V, with a little more than half of 1f1b's activations",
    .source = "Qi et al., 'Pipeline parallelism with controllable memory', NeurIPS 2024",
    .chains_only = true,
    .options = v_half_options,
    .kind =
        PartitionStrategy{.partition = by_options<v_half_partition>, .splits_backward = by_options<is_v_half_split>},
};

// The strategy `v_min`: two parts of the model a device, placed as a V, with a third of the memory of 1f1b.
extern constinit const StrategyInfo v_min_strategy{
    .name = "v_min",
    .family = Family::pipelining,
    .summary =
        "two parts a device, down and up the devices as a V, with a little more than a third of 1f1b's activations",
    .source = "Qi et al., 'Pipeline parallelism with controllable memory', NeurIPS 2024",
    .chains_only = true,
    .options = v_min_options,
    .kind = PartitionStrategy{.partition = by_options<v_min_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
