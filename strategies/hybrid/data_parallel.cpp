#include "strategies/hybrid/data_axis.h"

namespace plimsoll {
namespace {

constexpr OptionInfo data_parallel_options[] = {replicas_option, gradient_buckets_option, gradient_overlap_option,
                                                collectives_option};

std::variant<Problem, std::string> data_parallel_ranks(const Problem& problem, const Options& options) {
  return on_data_axis(problem, options,
                      {.sharded = Sharded::nothing, .bucket = bucket_of(options), .overlaps = overlaps(options)});
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
