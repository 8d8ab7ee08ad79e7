// The strategy `pool`: saved pictures wait for the backward as one value a block of pixels, which the backward takes
// for all of them. Source: Barley and Froening, Less Memory Means smaller GPUs: Backpropagation with Compressed
// Activations (arXiv 2409.11902, 2024).

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/ops/layers.h"
#include "strategies/compression/packing.h"
#include "strategies/models/part_alone.h"

namespace plimsoll {
namespace {

struct PoolOptions : PackedOptions {
  PoolOptions() { tensors = "conv.input"; }

  PoolType type = PoolType::average;
  std::uint32_t window = 2;
  bool of_means = false;
};

constexpr auto pool_options = options_of<PoolOptions>(
    option_of<&PoolOptions::type>({
        .name = "type",
        .values = "average, max or soft",
        .help = "what stands for a block: its mean, its maximum, or the mean "
                "weighted by the exponentials of its values",
    }),
    option_of<&PoolOptions::window>({
        .name = "k",
        .least = 2,
        .most = 1024,
        .help = "pixels a side of a block",
    }),
    tensors_option,
    option_of<&PoolOptions::of_means>({
        .name = "product",
        .words = "unpack means",
        .help =
            "how the gradient of a 1x1 convolution's weight is computed: from the unpacked picture, or from the means "
            "of blocks of it and of its result's gradient",
    }),
    relu_or_anew_option, packed_store_option);

/// Smaller maps become one value each; that no map is as large is a mistake.
void refuse_larger_than_maps(const Graph& graph, std::span<const SavedTensor> saved, const Codec& codec,
                             const PoolOptions& options) {
  if (is_part_alone(graph)) return;
  const UsePattern pattern(options.tensors);
  std::int64_t largest = 0;
  for (const SavedTensor& tensor : saved) {
    if (std::ranges::none_of(tensor.uses, [&](const SavedUse& use) { return pattern.matches(use); })) continue;
    const std::vector<std::int64_t>& shape = graph[tensor.tensor].shape;
    if (shape.size() != 4) continue;
    const std::size_t first = codec.channels_last ? 1 : 2;
    largest = std::max({largest, shape[first], shape[first + 1]});
  }
  if (largest == 0 || codec.window <= largest) return;
  throw InputError(fmt::format("pool: k={} is larger than every map that tensors={} names (the largest is {})",
                               codec.window, options.tensors, largest));
}

/// A convolution of single pixels, each with one of the result.
bool multiplies_pixels(const Graph& graph, const SavedTensor& tensor, const SavedUse& use, bool channels_last) {
  const Op& op = graph[use.op];
  const auto gradient =
      std::ranges::find_if(op.inputs, [&](TensorId t) { return graph[t].kind == TensorKind::gradient; });
  if (use.by != SavedBy::conv || kernel_of(graph, op) != 1 || gradient == op.inputs.end()) return false;
  const std::vector<std::int64_t>&shape = graph[tensor.tensor].shape, &result = graph[*gradient].shape;
  const std::size_t first = channels_last ? 1 : 2;
  return shape.size() == 4 && result.size() == 4 && shape[first] == result[first] &&
         shape[first + 1] == result[first + 1];
}

/// A form that all uses of a value share serves products only if all of them multiply pixels.
CodecChoice with_means(CodecChoice inner, const Graph& graph, bool of_layer) {
  return [inner = std::move(inner), &graph, of_layer](const SavedTensor& tensor, const SavedUse& use) {
    const auto serves = [&](const SavedUse& each) {
      const std::optional<Codec> codec = inner(tensor, each);
      return !codec || codec->kind != CodecKind::pool || multiplies_pixels(graph, tensor, each, codec->channels_last);
    };
    std::optional<Codec> chosen = inner(tensor, use);
    const bool is_pooled = chosen && chosen->kind == CodecKind::pool;
    if (is_pooled && (of_layer ? serves(use) : std::ranges::all_of(tensor.uses, serves))) chosen->product = 1;
    return chosen;
  };
}

std::vector<TapeOutcome> pool_tapes(const PartTask& task, const PoolOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  if (UsePattern(options.tensors).names(SavedBy::relu)) {
    throw InputError(
        "pool: a ReLU's gradient needs the sign of every value, which block means do not keep (cosine 0.05 "
        "of the gradient where they are taken for it): leave relu out of tensors=, and see the option relu");
  }
  const Codec codec{.kind = CodecKind::pool,
                    .type = options.type,
                    .window = options.window,
                    .channels_last = has_channels_last(task.problem.graph)};
  if (options.of_means && codec.type != PoolType::average) {
    throw InputError("pool: product=means takes means on both sides, and type=" + std::string(written(options.type)) +
                     " keeps others: take type=average");
  }
  const ChoiceOf choice = choice_by_pattern("pool", codec, options);
  return packed_tapes(task, "pool", budgets, before, [&](const Graph& graph, std::span<const SavedTensor> saved) {
    refuse_larger_than_maps(graph, saved, codec, options);
    PackingChoice made = choice(graph, saved);
    if (options.of_means) {
      made.codec = with_means(std::move(made.codec), graph, options.of_layer);
    }
    return made;
  });
}

}  // namespace

extern constinit const StrategyInfo pool_strategy{
    .name = "pool",
    .family = Family::compression,
    .summary = "keeps saved pictures as one value a block of pixels until the backward",
    .source = "Barley and Froening, arXiv 2409.11902, 2024",
    .options = pool_options,
    .kind = TapeStrategy{.tapes = by_options<pool_tapes>, .packs_stages = true},
};

}  // namespace plimsoll
