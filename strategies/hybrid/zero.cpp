// Replicas that share out what they keep, all or nothing of it: `data_parallel`, `zero1`, `zero2` and
// `zero3`.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "sim/io/quantity.h"
#include "strategies/api/option_rules.h"
#include "strategies/hybrid/on_mesh.h"

namespace plimsoll {
namespace {

constexpr auto data_parallel_options = options_of<DataOptions>(
    replicas_option, gradient_buckets_option,
    option_of<&DataOptions::bucket_view>({
        .name = "bucket_view",
        .words = "auto yes no",
        .help = "gradients lie in their buckets instead of being copied into them (gradient_as_bucket_view); auto: the "
                "framework's default, no as in PyTorch, or yes as in Megatron after a strategy that cuts operators",
    }),
    gradient_overlap_option, collectives_option);

/// As asked, with what of it runs beside the computation.
std::variant<Problem, std::string> replicas_of(const Problem& problem, const DataOptions& options, Together how) {
  const std::variant<bool, std::string> beside = overlaps(options, how.sharded);
  if (const std::string* why = std::get_if<std::string>(&beside)) return *why;
  how.overlaps = std::get<bool>(beside);
  return on_data_axis(problem, options, how);
}

std::variant<Problem, std::string> data_parallel_ranks(const Problem& problem, const DataOptions& options) {
  const Bytes bucket = options.buckets.value_or(Bytes{});
  const bool is_ddp =
      options.overlap == ExchangeOverlap::ddp || (options.overlap != ExchangeOverlap::megatron && !problem.mesh);
  const bool copies = bucket > Bytes{0} && (options.bucket_view == BucketView::no ||
                                            (options.bucket_view == BucketView::automatic && is_ddp));
  return replicas_of(problem, options, {.sharded = Sharded::nothing, .bucket = bucket, .buckets_are_copies = copies});
}

constexpr auto zero1_options =
    options_of<DataOptions>(replicas_option, gradient_buckets_option, gradient_overlap_option, collectives_option);

std::variant<Problem, std::string> zero1_ranks(const Problem& problem, const DataOptions& options) {
  return replicas_of(problem, options, {.sharded = Sharded::states, .bucket = options.buckets.value_or(Bytes{})});
}

constexpr auto zero2_options = options_of<DataOptions>(replicas_option, gradient_overlap_option, collectives_option);

std::variant<Problem, std::string> zero2_ranks(const Problem& problem, const DataOptions& options) {
  return replicas_of(problem, options, {.sharded = Sharded::gradients});
}

struct Zero3Options : DataOptions {
  std::uint32_t prefetch = 1;
  std::string reshards = "yes";
};

/// FSDP2's option: yes, no, or over how many ranks.
bool is_resharding(std::string_view text) {
  return text == "yes" || text == "no" || integer_between<2, 65'536>(text);
}

constexpr auto zero3_options = options_of<Zero3Options>(replicas_option,
                                                        option_of<&Zero3Options::prefetch>({
                                                            .name = "prefetch",
                                                            .least = 0,
                                                            .most = 1000,
                                                            .help = "how many stages ahead parameters are gathered",
                                                        }),
                                                        option_of<&Zero3Options::reshards>({
                                                            .name = "reshard_after_forward",
                                                            .values = "yes, no or a whole number from 2 to 65536",
                                                            .help = "no: what a stage gathers for its forward stays "
                                                                    "until its backward, which gathers nothing; a "
                                                                    "number: it stays as shares over so many "
                                                                    "neighbours, which the backward gathers",
                                                            .allowed = is_resharding,
                                                        }),
                                                        gradient_overlap_option, collectives_option);

std::variant<Problem, std::string> zero3_ranks(const Problem& problem, const Zero3Options& options) {
  Together how{.sharded = Sharded::parameters, .prefetch = options.prefetch, .reshards = options.reshards != "no"};
  const Parsed<std::int64_t> over = parse_integer(options.reshards);
  if (!over.fine()) return replicas_of(problem, options, how);
  const auto ranks = replicas(options, devices_left(problem));
  if (ranks % over.value != 0) {
    return fmt::format("reshard_after_forward={}: must divide the {} ranks that share parameters out", over.value,
                       ranks);
  }
  if (over.value < ranks) {  // shares over all of them are what goes
    how.kept_over = Axis{"near", static_cast<std::uint32_t>(over.value), true, options.collectives};
  }
  return replicas_of(problem, options, how);
}

}  // namespace

extern constinit const StrategyInfo data_parallel_strategy{
    .name = "data_parallel",
    .family = Family::hybrid,
    .summary = "Replicas of the model train on their own micro-batches; gradients are summed while the backward runs.",
    .source = "Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel Training, VLDB 2020",
    .options = data_parallel_options,
    .kind =
        SplitStrategy{
            .transform = by_options<data_parallel_ranks>,
            .ranks = by_options<replicas>,
            .shares_micro_batches = true,
        },
};

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

extern constinit const StrategyInfo zero2_strategy{
    .name = "zero2",
    .family = Family::hybrid,
    .summary = "As zero1; every replica also keeps the summed gradients of its share only.",
    .source = "Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, SC 2020",
    .options = zero2_options,
    .kind =
        SplitStrategy{
            .transform = by_options<zero2_ranks>,
            .ranks = by_options<replicas>,
            .shares_micro_batches = true,
        },
};

extern constinit const StrategyInfo zero3_strategy{
    .name = "zero3",
    .family = Family::hybrid,
    .summary =
        "As zero2; every replica also keeps only its share of the parameters, which each stage gathers to run (FSDP).",
    .source = "Rajbhandari et al., SC 2020; Zhao et al., PyTorch FSDP, VLDB 2023",
    .options = zero3_options,
    .kind =
        SplitStrategy{
            .transform = by_options<zero3_ranks>,
            .ranks = by_options<replicas>,
            .shares_micro_batches = true,
        },
};

}  // namespace plimsoll
