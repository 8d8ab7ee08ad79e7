// Asynchronous pipelines, which are never flushed: `pipedream` and `pipedream_2bw`: 1F1B
// with updates within the iteration, for which parts keep older versions of their parameters.

#include <fmt/format.h>

#include "sim/io/input_error.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

/// 1F1B on `ranks` devices with these updates. Throws InputError where gradients exist from the start.
std::vector<PartitionOutcome> asynchronous_1f1b(const Problem& problem, const LineOptions& options,
                                                std::string_view strategy, std::uint32_t ranks, Updates updates,
                                                std::span<const std::optional<Bytes>> budgets) {
  if (problem.gradients == Gradients::existing) {
    throw InputError(
        fmt::format("{}: gradients that exist from the start would have to be cleared between the updates of an "
                    "iteration, which no op does; give --gradients new",
                    strategy));
  }
  const PipelineOrder order = one_forward_one_backward_order(problem.micro_batches, ranks);
  return pipeline(problem, options, strategy, order, budgets, updates);
}

std::vector<PartitionOutcome> pipedream_partition(const Problem& problem, const LineOptions& options,
                                                  std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "pipedream");
  return asynchronous_1f1b(problem, options, "pipedream", ranks, {Versions::stashed, 1}, budgets);
}

constexpr auto pipedream_options = options_of<LineOptions>(stages_option, cut_option, backward_option);

struct Pipedream2bwOptions : LineOptions {
  std::optional<std::uint32_t> group;
};

std::vector<PartitionOutcome> pipedream_2bw_partition(const Problem& problem, const Pipedream2bwOptions& options,
                                                      std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "pipedream_2bw");
  const std::uint32_t group = options.group.value_or(ranks);
  if (group < ranks) {
    throw InputError(fmt::format(
        "pipedream_2bw: group={}, and {} stages need at least {}: else a third version is read", group, ranks, ranks));
  }
  if (problem.micro_batches % group != 0) {
    throw InputError(fmt::format("pipedream_2bw: {} micro-batch{}, which must be a multiple of the {} of an update",
                                 problem.micro_batches, problem.micro_batches == 1 ? "" : "es", group));
  }
  return asynchronous_1f1b(problem, options, "pipedream_2bw", ranks, {Versions::double_buffered, group}, budgets);
}

constexpr auto pipedream_2bw_options = options_of<Pipedream2bwOptions>(
    stages_option, cut_option, backward_option,
    option_of<&Pipedream2bwOptions::group>({
        .name = "group",
        .least = 1,
        .most = 1e6,
        .help = "micro-batches of one update, at least as many as stages; auto: as many. --micro-batches is a multiple",
    }));

}  // namespace

// The strategy `pipedream`: 1F1B without a flush. A stage updates its parameters after every micro-batch and keeps each
// version until the backward of the micro-batch whose forward has read it.
// Equation: with updates that take no time an iteration of m micro-batches takes as long as 1F1B's, fill and drain
// included; from one micro-batch to the next the longest stage's F + B + update pass. Stage s keeps min(p - s, m)
// micro-batches and, of w = p - s - 1 > 0 and m > 1, min(w + 1, max(2, m - w + 1)) versions: p - s for m >= 2w.
extern constinit const StrategyInfo pipedream_strategy{
    .name = "pipedream",
    .family = Family::pipelining,
    .summary =
        "1f1b that is never flushed: an update after every micro-batch, and a version of the weights for each "
        "micro-batch in flight",
    .source = "Narayanan et al., 'PipeDream: generalized pipeline parallelism for DNN training', SOSP 2019",
    .chains_only = true,
    .needs_updates = true,
    .options = pipedream_options,
    .kind = PartitionStrategy{.partition = by_options<pipedream_partition>,
                              .splits_backward = by_options<is_backward_split>},
};

// The strategy `pipedream_2bw`: 1F1B without a flush and with two buffers of the weights. A stage updates its
// parameters after every group of k micro-batches, k >= p; group u reads what the update of group u - 2 has left.
// Equation: with updates that take no time an iteration of m micro-batches takes as long as 1F1B's; W(u + 1) = W(u) -
// rate * gradient at W(u - 1). Stage s keeps min(p - s, m) micro-batches and two versions, one where m = k.
extern constinit const StrategyInfo pipedream_2bw_strategy{
    .name = "pipedream_2bw",
    .family = Family::pipelining,
    .summary =
        "1f1b that is never flushed: an update after every group of micro-batches, and two versions of the weights",
    .source = "Narayanan et al., 'Memory-efficient pipeline-parallel DNN training', ICML 2021",
    .chains_only = true,
    .needs_updates = true,
    .options = pipedream_2bw_options,
    .kind = PartitionStrategy{.partition = by_options<pipedream_2bw_partition>,
                              .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
