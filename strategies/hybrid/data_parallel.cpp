#include "strategies/hybrid/data_axis.h"

namespace plimsoll {
namespace {

constexpr OptionInfo data_parallel_options[] = {
    replicas_option,
    gradient_buckets_option,
    text_option("bucket_view", "auto", "auto, yes or no",
                "gradients lie in their buckets instead of being copied into them (gradient_as_bucket_view); auto: as "
                "frameworks "
                "do by default, no in PyTorch and, behind what cuts operators, yes in Megatron",
                [](std::string_view text) { return text == "auto" || text == "yes" || text == "no"; }),
    gradient_overlap_option,
    collectives_option,
};

std::variant<Problem, std::string> data_parallel_ranks(const Problem& problem, const Options& options) {
  const std::string_view view = options.text("bucket_view");
  const Bytes bucket = bucket_of(options);
  const bool copies = bucket > Bytes{0} && (view == "no" || (view == "auto" && !problem.mesh));
  return on_data_axis(
      problem, options,
      {.sharded = Sharded::nothing, .bucket = bucket, .overlaps = overlaps(options), .buckets_are_copies = copies});
}

}  // namespace

extern constinit const StrategyInfo data_parallel_strategy{
    .name = "data_parallel",
    .family = Family::hybrid,
    .summary = "Replicas of the model train on their own micro-batches; gradients are summed beside the backward.",
    .source = "Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020",
    .chains_only = false,
    .options = data_parallel_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .shares_micro_batches = true,
    .transform = data_parallel_ranks,
    .ranks = replicas,
};

}  // namespace plimsoll
