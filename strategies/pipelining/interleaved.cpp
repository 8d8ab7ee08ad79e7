// The strategy `interleaved`: Megatron-LM's 1F1B with `chunks` parts of the model on every device, which shortens the
// time in which the pipeline fills and drains.
// Equation: with equal parts, free transfers and m >= p the makespan is (m v + p - 1)(f + b), f and b the times of one
// of v parts a device.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/io/input_error.h"
#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

/// Of a group with fewer micro-batches than there are ranks, the first ranks would wait for the last one between two
/// parts, and the last one for them.
std::vector<std::uint32_t> groups_asked(const Options& options, std::uint32_t ranks, std::uint32_t m) {
  if (options.text("group") == "auto") return interleaved_groups(ranks, m);
  const auto group = static_cast<std::uint32_t>(options.integer("group"));
  std::vector<std::uint32_t> groups = interleaved_groups(ranks, m, group);
  if (const std::uint32_t least = std::ranges::min(groups); groups.size() > 1 && least < ranks) {
    throw InputError(
        fmt::format("interleaved: group={} makes a group of {} of {} micro-batches, and of several each has at least "
                    "one a device, {}",
                    group, least, m, ranks));
  }
  return groups;
}

std::vector<PartitionOutcome> interleaved_partition(const Problem& problem, const Options& options,
                                                    std::span<const std::optional<Bytes>> budgets) {
  const auto chunks = static_cast<std::uint32_t>(options.integer("chunks"));
  const std::uint32_t ranks = ranks_of(problem, options, "interleaved", chunks);
  const WarmUp warm_up = options.text("warm_up") == "megatron" ? WarmUp::megatron : WarmUp::less_memory;
  const PipelineOrder order =
      interleaved_order(ranks, chunks, groups_asked(options, ranks, problem.micro_batches), warm_up);
  return pipeline(problem, options, "interleaved", order, budgets);
}

constexpr std::array interleaved_options{
    stages_option,
    cut_option,
    shared_updates_option,
    work_conserving_option,
    backward_option,
    chunks_option,
    OptionInfo{
        .name = "warm_up",
        .default_value = "megatron",
        .values = "megatron or less_memory",
        .help =
            "forwards before the first backward: Megatron-LM's (v - 1) g + 2 (p - r - 1) on rank r with groups of g "
            "micro-batches, or (v - 1) g + p - r - 1",
        .allowed = [](std::string_view text) { return text == "megatron" || text == "less_memory"; },
    },
    OptionInfo{
        .name = "group",
        .default_value = "auto",
        .values = "auto or a whole number from 1 to 1000000",
        .help = "micro-batches that a device takes of one of its parts before it goes on to the next part; auto: as "
                "PyTorch, m micro-batches on p devices in m / p groups, rounded down, here as equal as can be",
        .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 1'000'000>(text); },
    }};

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
    .tapes = nullptr,
    .candidates = nullptr,
    .partition = interleaved_partition,
    .splits_backward = is_backward_split,
};

}  // namespace plimsoll
