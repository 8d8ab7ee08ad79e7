// The strategy `eager_1f1b`: 1F1B with twice the forwards to warm up, so that transfers hide behind them.
// Equation: with equal stages and a transfer time c, 2c <= F + B, the makespan is (m + p - 1)(F + B) + 2c(p - 1), and
// stage s keeps min(2(p - s - 1) + 1, m) micro-batches.

#include "strategies/pipelining/buckets.h"
#include "strategies/pipelining/orders/by_turns.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> eager_1f1b_partition(const Problem& problem, const TurnOptions& options,
                                                   std::span<const std::optional<Bytes>> budgets) {
  return by_turns(problem, options, "eager_1f1b", 2, budgets);
}

constexpr auto eager_1f1b_options =
    options_of<TurnOptions>(stages_option, joint_cut_option, shared_updates_option, work_conserving_option,
                            backward_option, in_flight_option, buckets_option);

}  // namespace

extern constinit const StrategyInfo eager_1f1b_strategy{
    .name = "eager_1f1b",
    .family = Family::pipelining,
    .summary = "1f1b with twice the forwards to warm up: keeps more micro-batches and hides transfers",
    .source = "Zhuang et al., 'On optimizing the communication of model parallelism', MLSys 2023",
    .chains_only = true,
    .options = eager_1f1b_options,
    .kind = PartitionStrategy{.partition = by_options<eager_1f1b_partition>,
                              .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
