// The strategy `zb_h2`: zero bubble by hand. The backward is split; weight gradients fill what would be idle time.
// Equation: with equal stages and free transfers the longest stage is idle for (p - 1)(F + B - 2W) at most, and the
// first stage keeps 2p - 1 micro-batches.

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> zb_h2_partition(const Problem& problem, const LineOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_h2");
  return pipeline(problem, options, "zb_h2", zero_bubble_order(ranks, problem.micro_batches, 2), budgets);
}

constexpr auto zb_h2_options =
    options_of<LineOptions>(stages_option, joint_cut_option, shared_updates_option, work_conserving_option);

}  // namespace

extern constinit const StrategyInfo zb_h2_strategy{
    .name = "zb_h2",
    .family = Family::pipelining,
    .summary = "as zb_h1 with twice the forwards to warm up: hardly any idle time, twice the memory",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_h2_options,
    .kind = PartitionStrategy{.partition = by_options<zb_h2_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
