// The strategy `interleaved`: Megatron-LM's 1F1B with `chunks` parts of the model on every device, which shortens the
// time in which the pipeline fills and drains.
// Equation: with equal parts, free transfers and m >= p the makespan is (m v + p - 1)(f + b), f and b the times of one
// of v parts a device.

#include <fmt/format.h>

#include <algorithm>

#include "sim/io/input_error.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

struct InterleavedOptions : LineOptions {
  std::uint32_t chunks = 2;
  WarmUp warm_up = WarmUp::megatron;
  std::optional<std::uint32_t> group;
};

/// Of a group with fewer micro-batches than there are ranks, the first ranks would wait for the last one between two
/// parts, and the last one for them.
std::vector<std::uint32_t> groups_asked(const InterleavedOptions& options, std::uint32_t ranks, std::uint32_t m) {
  if (!options.group) return interleaved_groups(ranks, m);
  const std::uint32_t group = *options.group;
  std::vector<std::uint32_t> groups = interleaved_groups(ranks, m, group);
  if (const std::uint32_t least = std::ranges::min(groups); groups.size() > 1 && least < ranks) {
    throw InputError(
        fmt::format("interleaved: group={} makes a group of {} of {} micro-batches, and of several each has at least "
                    "one a device, {}",
                    group, least, m, ranks));
  }
  return groups;
}

std::vector<PartitionOutcome> interleaved_partition(const Problem& problem, const InterleavedOptions& options,
                                                    std::span<const std::optional<Bytes>> budgets) {
  const std::uint32_t chunks = options.chunks;
  const std::uint32_t ranks = ranks_of(problem, options, "interleaved", chunks);
  const PipelineOrder order =
      interleaved_order(ranks, chunks, groups_asked(options, ranks, problem.micro_batches), options.warm_up);
  return with_sends(pipeline(problem, options, "interleaved", order, budgets), options);
}

constexpr auto interleaved_options = options_of<InterleavedOptions>(
    stages_option, cut_option, shared_updates_option, work_conserving_option, backward_option, sends_option,
    chunks_option<InterleavedOptions>,
    option_of<&InterleavedOptions::warm_up>({
        .name = "warm_up",
        .words = "megatron less_memory",
        .help =
            "forwards before the first backward: Megatron-LM's (v - 1) g + 2 (p - r - 1) on rank r with groups of g "
            "micro-batches, or (v - 1) g + p - r - 1",
    }),
    option_of<&InterleavedOptions::group>({
        .name = "group",
        .least = 1,
        .most = 1e6,
        .help = "micro-batches that a device takes of one of its parts before it goes on to the next part; auto: as "
                "PyTorch, m micro-batches on p devices in m / p groups, rounded down, here as equal as can be",
    }));

}  // namespace

extern constinit const StrategyInfo interleaved_strategy{
    .name = "interleaved",
    .family = Family::pipelining,
    .summary =
        "1f1b with several parts of the model on every device: less time to fill and drain the pipeline, more "
        "transfers",
    .source =
        "Narayanan et al., 'Efficient large-scale language model training on GPU clusters using Megatron-LM', SC 2021; "
        "less_memory: SAPP",
    .chains_only = true,
    .options = interleaved_options,
    .kind = PartitionStrategy{.partition = by_options<interleaved_partition>,
                              .splits_backward = by_options<is_backward_split>},
};

}  // namespace plimsoll
