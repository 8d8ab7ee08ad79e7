// The strategy `gpipe`: all forwards of an iteration, then all backwards.
// Equation: with equal stages and free transfers the makespan is (m + p - 1)(F + B), and each stage keeps m
// micro-batches.

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

struct GpipeOptions : LineOptions {
  BackwardOrder order = BackwardOrder::lifo;
};

std::vector<PartitionOutcome> gpipe_partition(const Problem& problem, const GpipeOptions& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "gpipe");
  return pipeline(problem, options, "gpipe", gpipe_order(ranks, problem.micro_batches, options.order), budgets);
}

constexpr auto gpipe_options = options_of<GpipeOptions>(
    stages_option, joint_cut_option, shared_updates_option, work_conserving_option, backward_option,
    option_of<&GpipeOptions::order>({
        .name = "order",
        .words = "fifo lifo",
        .help = "which micro-batch's backward is first: the first one's or the last one's",
    }));

}  // namespace

extern constinit const StrategyInfo gpipe_strategy{
    .name = "gpipe",
    .family = Family::pipelining,
    .summary = "a pipeline: all micro-batches' forwards, then all their backwards",
    .source = "Huang et al., 'GPipe', NeurIPS 2019",
    .chains_only = true,
    .options = gpipe_options,
    .kind =
        PartitionStrategy{.partition = by_options<gpipe_partition>, .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
