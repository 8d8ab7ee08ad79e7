// The strategy `1f1b`: after p - s - 1 forwards to warm up, stage s takes one forward and one backward by turns.
// Equation: with equal stages and free transfers the makespan is (m + p - 1)(F + B), and stage s keeps min(p - s, m)
// micro-batches; a transfer time c adds 2c((p - 1)(1 + floor((m - 1) / p)) + max(0, (m - 1) mod p - 1)).

#include "strategies/pipelining/buckets.h"
#include "strategies/pipelining/orders/by_turns.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> one_forward_one_backward_partition(const Problem& problem, const TurnOptions& options,
                                                                 std::span<const std::optional<Bytes>> budgets) {
  return by_turns(problem, options, "1f1b", 1, budgets);
}

constexpr auto one_forward_one_backward_options =
    options_of<TurnOptions>(stages_option, joint_cut_option, shared_updates_option, work_conserving_option,
                            backward_option, in_flight_option, buckets_option);

}  // namespace

extern constinit const StrategyInfo one_forward_one_backward_strategy{
    .name = "1f1b",
    .family = Family::pipelining,
    .summary =
        "a pipeline: each stage takes one forward and one backward by turns, so that few micro-batches are in flight",
    .source = "Narayanan et al., 'PipeDream', SOSP 2019 (with a flush); Fan et al., 'DAPPLE', PPoPP 2021",
    .chains_only = true,
    .options = one_forward_one_backward_options,
    .kind = PartitionStrategy{.partition = by_options<one_forward_one_backward_partition>,
                              .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
