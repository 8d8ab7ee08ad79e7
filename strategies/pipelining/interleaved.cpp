// The strategy `interleaved`: Megatron-LM's 1F1B with `chunks` parts of the model on every device, which shortens the
// time in which the pipeline fills and drains.
// Equation: with equal parts, free transfers and m a multiple of p the makespan is (m v + p - 1)(f + b), f and b the
// times of one of v parts a device.

#include <array>

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {
namespace {

std::vector<PartitionOutcome> interleaved_partition(const Problem& problem, const Options& options,
                                                    std::span<const std::optional<Bytes>> budgets) {
  const auto chunks = static_cast<std::uint32_t>(options.integer("chunks"));
  const std::uint32_t ranks = ranks_of(problem, options, "interleaved", chunks);
  const WarmUp warm_up = options.text("warm_up") == "megatron" ? WarmUp::megatron : WarmUp::less_memory;
  const PipelineOrder order = interleaved_order(ranks, chunks, problem.micro_batches, warm_up);
  return pipeline(problem, options, "interleaved", order, budgets);
}

constexpr std::array interleaved_options{
    stages_option,
    cut_option,
    work_conserving_option,
    backward_option,
    chunks_option,
    OptionInfo{
        .name = "warm_up",
        .default_value = "megatron",
        .values = "megatron or less_memory",
        .help = "forwards before the first backward: Megatron-LM's (v + 1) p - 2 r - 2 on rank r, or v p - r - 1",
        .allowed = [](std::string_view text) { return text == "megatron" || text == "less_memory"; },
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
