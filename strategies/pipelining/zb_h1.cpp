// The strategy `zb_h1`: zero bubble by hand. The backward is split; weight gradients fill what would be idle time.
// Equation: with equal stages and free transfers the bubble is (p - 1)(F + B - W), and no stage keeps more than
// 1F1B's first one.

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> zb_h1_partition(const Problem& problem, const LineOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "zb_h1");
  return pipeline(problem, options, "zb_h1", zero_bubble_order(ranks, problem.micro_batches, 1), budgets);
}

constexpr auto zb_h1_options =
    options_of<LineOptions>(stages_option, joint_cut_option, shared_updates_option, work_conserving_option);

}  // namespace

extern constinit const StrategyInfo zb_h1_strategy{
    .name = "zb_h1",
    .family = Family::pipelining,
    .summary = "1f1b whose weight gradients are made later, when a stage would be idle; memory as 1f1b",
    .source = "Qi et al., 'Zero bubble pipeline parallelism', ICLR 2024",
    .chains_only = true,
    .options = zb_h1_options,
    .kind = PartitionStrategy{.partition = by_options<zb_h1_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
