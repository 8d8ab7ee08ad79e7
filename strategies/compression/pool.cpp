// The strategy `pool`: saved pictures wait for the backward as one value a block of pixels, which the backward takes
// for all of them. Source: Barley and Froening, Less Memory Means smaller GPUs: Backpropagation with Compressed
// Activations (arXiv 2409.11902, 2024).

#include <array>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "strategies/common/option_rules.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

constexpr std::array pool_options{
    OptionInfo{"type", "average", "average, max or soft",
               "what stands for a block: its mean, its maximum, or the mean "
               "weighted by the exponentials of its values",
               [](std::string_view text) { return from_name<PoolType>(text).has_value(); }},
    OptionInfo{"k", "2", "a whole number from 2 to 1024", "pixels a side of a block", integer_between<2, 1024>},
    OptionInfo{"tensors", "conv.input", tensors_option.values, tensors_option.help, tensors_option.allowed},
    relu_option,
};

std::vector<TapeOutcome> pool_tapes(const PartTask& task, const Options& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  if (UsePattern(options.text("tensors")).names(Layer::relu)) {
    throw InputError(
        "pool: a ReLU's gradient needs the sign of every value, which block means do not keep (cosine 0.05 "
        "of the gradient where they are taken for it): leave relu out of tensors=, and see the option relu");
  }
  const Codec codec{.kind = CodecKind::pool,
                    .type = *from_name<PoolType>(options.text("type")),
                    .window = static_cast<std::uint32_t>(options.integer("k")),
                    .channels_last = has_channels_last(task.problem.graph)};
  return packed_tapes(task, "pool", budgets, before, choice_by_pattern("pool", codec, options));
}

}  // namespace

extern constinit const StrategyInfo pool_strategy{
    .name = "pool",
    .family = Family::compression,
    .summary = "keeps saved pictures as one value a block of pixels until the backward",
    .source = "Barley and Froening, arXiv 2409.11902, 2024",
    .chains_only = false,
    .options = pool_options,
    .tapes = pool_tapes,
    .candidates = nullptr,
};

}  // namespace plimsoll
