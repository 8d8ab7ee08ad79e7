#include "strategies/hybrid/data_axis.h"

namespace plimsoll {
namespace {

constexpr auto zero1_options =
    options_of<DataOptions>(replicas_option, gradient_buckets_option, gradient_overlap_option, collectives_option);

std::variant<Problem, std::string> zero1_ranks(const Problem& problem, const DataOptions& options) {
  return on_data_axis(
      problem, options,
      {.sharded = Sharded::states, .bucket = options.buckets.value_or(Bytes{}), .overlaps = options.overlap});
}

}  // namespace

extern constinit const StrategyInfo zero1_strategy{
    .name = "zero1",
    .family = Family::hybrid,
    .summary =
        "Data parallelism in which every replica updates a share of the parameters and has only its optimizer states.",
    .source = "Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020",
    .options = zero1_options,
    .kind =
        SplitStrategy{
            .transform = by_options<zero1_ranks>,
            .ranks = by_options<replicas>,
            .shares_micro_batches = true,
        },
};

}  // namespace plimsoll
