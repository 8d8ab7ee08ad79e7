#include "strategies/hybrid/data_axis.h"

namespace plimsoll {
namespace {

constexpr auto zero2_options = options_of<DataOptions>(replicas_option, collectives_option);

std::variant<Problem, std::string> zero2_ranks(const Problem& problem, const DataOptions& options) {
  return on_data_axis(problem, options, {.sharded = Sharded::gradients});
}

}  // namespace

extern constinit const StrategyInfo zero2_strategy{
    .name = "zero2",
    .family = Family::hybrid,
    .summary = "As zero1; of the gradients, too, every replica keeps the sums of its share only.",
    .source = "Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020",
    .options = zero2_options,
    .kind =
        SplitStrategy{
            .transform = by_options<zero2_ranks>,
            .ranks = by_options<replicas>,
            .shares_micro_batches = true,
        },
};

}  // namespace plimsoll
