// The strategy `dualpipe`: a pipeline each way over the same devices, with split backwards.
// Equation: with W half of the whole backward, free transfers and a forward and a backward of the two ways that take as
// long together as one after the other, the bubble is (p / 2 - 1)(F + 2 (B + W) - 3 W).

#include <fmt/format.h>

#include "sim/io/input_error.h"
#include "strategies/pipelining/buckets.h"
#include "strategies/pipelining/orders/both_ways.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> dualpipe_partition(const Problem& problem, const LineOptions& options,
                                                 std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t ranks = ranks_of(problem, options, "dualpipe"), m = problem.micro_batches;
  if (ranks % 2 != 0) throw InputError(fmt::format("dualpipe: {} stages, and the two ways need an even number", ranks));
  if (m % 2 != 0 || m < 2 * ranks) {
    throw InputError(fmt::format("dualpipe: {} micro-batch{}, and {} stages need an even number of at least {}", m,
                                 m == 1 ? "" : "es", ranks, 2 * ranks));
  }
  return in_buckets(pipeline(problem, options, "dualpipe", dualpipe_order(ranks, m), budgets), options);
}

constexpr auto dualpipe_options =
    options_of<LineOptions>(stages_option, cut_option, shared_updates_option, work_conserving_option, buckets_option);

}  // namespace

extern constinit const StrategyInfo dualpipe_strategy{
    .name = "dualpipe",
    .family = Family::pipelining,
    .summary = "a pipeline each way with split backwards: little idle time, twice the weights, one micro-batch more",
    .source = "DeepSeek-AI, 'DeepSeek-V3 technical report', 2024",
    .chains_only = true,
    .options = dualpipe_options,
    .kind = PartitionStrategy{.partition = by_options<dualpipe_partition>,
                              .splits_backward = [](const Options&) { return true; }},
};

}  // namespace plimsoll
