// The strategy `pipedream_2bw`: 1F1B without a flush and with two buffers of the weights. A stage updates its
// parameters after every group of k micro-batches, k >= p; group u reads what the update of group u - 2 has left.
// Equation: with updates that take no time an iteration of m micro-batches takes as long as 1F1B's; W(u + 1) = W(u) -
// rate * gradient at W(u - 1). Stage s keeps min(p - s, m) micro-batches and two versions, one where m = k.

#include <fmt/format.h>

#include "sim/io/input_error.h"
#include "strategies/pipelining/asynchronous.h"

namespace plimsoll {
namespace {

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
