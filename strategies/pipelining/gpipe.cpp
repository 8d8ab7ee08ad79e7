// The strategy `gpipe`: all forwards of an iteration, then all backwards.
// Equation: with equal stages and free transfers the makespan is (m + p - 1)(F + B), and each stage keeps m
// micro-batches.

#include <array>

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> gpipe_partition(const Problem& problem, const Options& options,
                                              std::span<const std::optional<Bytes>> budgets) {
  const BackwardOrder backward = options.text("order") == "fifo" ? BackwardOrder::fifo : BackwardOrder::lifo;
  const std::uint32_t ranks = ranks_of(problem, options, "gpipe");
  return pipeline(problem, options, "gpipe", gpipe_order(ranks, problem.micro_batches, backward), budgets);
}

constexpr std::array gpipe_options{
    stages_option,
    joint_cut_option,
    shared_updates_option,
    work_conserving_option,
    backward_option,
    OptionInfo{
        .name = "order",
        .default_value = "lifo",
        .values = "fifo or lifo",
        .help = "which micro-batch's backward is first: the first one's or the last one's",
        .allowed = [](std::string_view text) { return text == "fifo" || text == "lifo"; },
    }};

}  // namespace

extern constinit const StrategyInfo gpipe_strategy{
    .name = "gpipe",
    .family = Family::pipelining,
    .summary = "a pipeline: all micro-batches' forwards, then all their backwards",
    .source = "Huang et al., 'GPipe', NeurIPS 2019",
    .chains_only = true,
    .options = gpipe_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .partition = gpipe_partition,
    .splits_backward = is_backward_split,
};

}  // namespace plimsoll
