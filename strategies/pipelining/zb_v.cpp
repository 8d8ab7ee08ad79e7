// The strategy `zb_v`: two parts of the model a device, placed as a V, and zero bubble found by a heuristic within a
// limit of memory. With F = B = W, free transfers and m >= 2p there is none.

#include <array>
#include <cmath>

#include "sim/io/input_error.h"
#include "strategies/pipelining/pipeline.h"
#include "strategies/pipelining/v_shape_search.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> zb_v_partition(const Problem& problem, const Options& options,
                                             std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_v", 2);
  const PartCosts costs = part_costs(problem, cut_for(problem, options, "zb_v", v_shape(ranks), true));
  std::vector<std::int64_t> limits;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::int64_t kept = costs.kept[r] + costs.kept[2 * ranks - 1 - r];
    limits.push_back(
        static_cast<std::int64_t>(std::floor(options.number("limit") * ranks * static_cast<double>(kept))));
  }
  const std::optional<PipelineOrder> order = v_shape_search(costs, problem.micro_batches, limits);
  if (!order) throw InputError("zb_v: limit is too small for one micro-batch; the least is about 1 / stages");
  return pipeline(problem, options, "zb_v", *order, budgets);
}

constexpr std::array zb_v_options{stages_option, cut_option, limit_option};

}  // namespace

extern constinit const StrategyInfo zb_v_strategy{
    .name = "zb_v",
    .family = Family::pipelining,
    .summary = "zero bubble with two parts a device, down and up the devices as a V, within a limit of memory",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_v_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .partition = zb_v_partition,
    .splits_backward = [](const Options&) { return true; },
};

}  // namespace plimsoll
