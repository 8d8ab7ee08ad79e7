// The strategy `pipedream`: 1F1B without a flush. A stage updates its parameters after every micro-batch and keeps each
// version until the backward of the micro-batch whose forward has read it.
// Equation: with updates that take no time an iteration of m micro-batches takes as long as 1F1B's, fill and drain
// included; from one micro-batch to the next the longest stage's F + B + update pass. Stage s keeps min(p - s, m)
// micro-batches and, of w = p - s - 1 > 0 and m > 1, min(w + 1, max(2, m - w + 1)) versions: p - s for m >= 2w.

#include "strategies/pipelining/asynchronous.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> pipedream_partition(const Problem& problem, const LineOptions& options,
                                                  std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "pipedream");
  return asynchronous_1f1b(problem, options, "pipedream", ranks, {Versions::stashed, 1}, budgets);
}

constexpr auto pipedream_options = options_of<LineOptions>(stages_option, cut_option, backward_option);

}  // namespace

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

}  // namespace plimsoll
