#include "strategies/hybrid/data_axis.h"

namespace plimsoll {
namespace {

constexpr auto data_parallel_options = options_of<DataOptions>(
    replicas_option, gradient_buckets_option,
    option_of<&DataOptions::bucket_view>({
        .name = "bucket_view",
        .words = "auto yes no",
        .help = "gradients lie in their buckets instead of being copied into them (gradient_as_bucket_view); auto: as "
                "frameworks "
                "do by default, no in PyTorch and, behind what cuts operators, yes in Megatron",
    }),
    gradient_overlap_option, collectives_option);

std::variant<Problem, std::string> data_parallel_ranks(const Problem& problem, const DataOptions& options) {
  const Bytes bucket = options.buckets.value_or(Bytes{});
  const bool copies = bucket > Bytes{0} && (options.bucket_view == BucketView::no ||
                                            (options.bucket_view == BucketView::automatic && !problem.mesh));
  return on_data_axis(
      problem, options,
      {.sharded = Sharded::nothing, .bucket = bucket, .overlaps = options.overlap, .buckets_are_copies = copies});
}

}  // namespace

extern constinit const StrategyInfo data_parallel_strategy{
    .name = "data_parallel",
    .family = Family::hybrid,
    .summary = "Replicas of the model train on their own micro-batches; gradients are summed beside the backward.",
    .source = "Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020",
    .options = data_parallel_options,
    .kind =
        SplitStrategy{
            .transform = by_options<data_parallel_ranks>,
            .ranks = by_options<replicas>,
            .shares_micro_batches = true,
        },
};

}  // namespace plimsoll
