// The strategy `chimera`: pipelines down and up the same devices, which fill each other's idle time; every device has a
// part of the model for each, and the gradients of the copies are summed.
// Equation: with F = B, free transfers and m a multiple of p the makespan is (2m + p / pairs - 2) F.

#include <fmt/format.h>

#include "sim/io/input_error.h"
#include "strategies/pipelining/buckets.h"
#include "strategies/pipelining/orders/both_ways.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

struct ChimeraOptions : LineOptions {
  std::uint32_t pairs = 1;
};

std::vector<PartitionOutcome> chimera_partition(const Problem& problem, const ChimeraOptions& options,
                                                std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t pairs = options.pairs;
  const std::uint32_t ranks = ranks_of(problem, options, "chimera");
  if (ranks % (2 * pairs) != 0) {
    throw InputError(fmt::format("chimera: {} stages, and pairs={} needs a multiple of {}", ranks, pairs, 2 * pairs));
  }
  if (problem.micro_batches < 2 * pairs) {
    throw InputError(fmt::format("chimera: {} micro-batch{}, and {} pipelines need at least {}", problem.micro_batches,
                                 problem.micro_batches == 1 ? "" : "es", 2 * pairs, 2 * pairs));
  }
  return in_buckets(pipeline(problem, options, "chimera", chimera_order(ranks, problem.micro_batches, pairs), budgets),
                    options);
}

constexpr auto chimera_options = options_of<ChimeraOptions>(
    stages_option, cut_option, shared_updates_option, work_conserving_option, backward_option, buckets_option,
    option_of<&ChimeraOptions::pairs>({
        .name = "pairs",
        .least = 1,
        .most = 32,
        .help = "pipelines each way; twice as many copies of the model's weights. stages must be a multiple of 2 pairs",
    }));

}  // namespace

extern constinit const StrategyInfo chimera_strategy{
    .name = "chimera",
    .family = Family::pipelining,
    .summary = "pipelines both ways over the same devices: half the idle time, twice the weights",
    .source =
        "Li, Hoefler, 'Chimera: efficiently training large-scale neural networks with bidirectional pipelines', SC "
        "2021",
    .chains_only = true,
    .options = chimera_options,
    .kind =
        PartitionStrategy{.partition = by_options<chimera_partition>, .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
