// One packed form for all saved values that it fits: `quantize`, `lossless`, `prune_bsr`, `pool` and `gist`.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/ops/layers.h"
#include "strategies/compression/packing.h"
#include "strategies/models/part_alone.h"

namespace plimsoll {
namespace {

struct QuantizeOptions : PackedOptions {
  std::uint32_t bits = 4;
  std::uint32_t group = 256;
};

constexpr std::uint32_t bytes_of_range = 8;  // a scale and a minimum in fp32

Codec quantize_codec(const QuantizeOptions& options) {
  return {.kind = CodecKind::quantize, .bits = options.bits, .group = options.group, .group_bytes = bytes_of_range};
}

bool is_multiple_of_8(std::string_view text) {
  std::int64_t group = 0;
  std::from_chars(text.data(), text.data() + text.size(), group);
  return group % 8 == 0;
}

constexpr auto quantize_options =
    options_of<QuantizeOptions>(option_of<&QuantizeOptions::bits>({
                                    .name = "bits",
                                    .words = "1 2 4 8",
                                    .help = "bits of a number",
                                }),
                                option_of<&QuantizeOptions::group>({
                                    .name = "group",
                                    .least = 8,
                                    .most = 1'048'576,
                                    .values = "a multiple of 8 from 8 to 1048576",
                                    .help = "how many values in a row share a scale and a minimum (8 bytes)",
                                    .allowed = is_multiple_of_8,
                                }),
                                tensors_option, relu_or_anew_option, packed_store_option);

std::vector<TapeOutcome> quantize_tapes(const PartTask& task, const QuantizeOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return packed_tapes(task, "quantize", budgets, before,
                      choice_by_pattern("quantize", quantize_codec(options), options));
}

struct LosslessOptions : PackedOptions {
  LosslessOptions() { tensors = "conv.input+linear.input"; }

  double nonzero = 0.5;
};

constexpr auto lossless_options = options_of<LosslessOptions>(
    option_of<&LosslessOptions::nonzero>({
        .name = "nonzero",
        .least = 0.01,
        .most = 1,
        .help = "largest share of nonzero values: memory is reserved for it (measure it on your data)",
    }),
    tensors_option, relu_or_anew_option, packed_store_option);

std::vector<TapeOutcome> lossless_tapes(const PartTask& task, const LosslessOptions& options,
                                        std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const Codec codec{.kind = CodecKind::zero_run, .keep = options.nonzero};
  return packed_tapes(task, "lossless", budgets, before, choice_by_pattern("lossless", codec, options));
}

struct PruneBsrOptions : PackedOptions {
  PruneBsrOptions() { tensors = "linear.input+conv.input"; }

  std::uint32_t block = 8;
  double keep = 0.25;
  std::optional<double> product;
};

constexpr auto prune_bsr_options = options_of<PruneBsrOptions>(
    option_of<&PruneBsrOptions::block>({
        .name = "block",
        .least = 1,
        .most = 256,
        .help = "rows and columns of a block",
    }),
    option_of<&PruneBsrOptions::keep>({
        .name = "keep",
        .least = 0.001,
        .most = 1,
        .help = "share of the blocks that stay",
    }),
    tensors_option,
    option_of<&PruneBsrOptions::product>({
        .name = "product",
        .least = 0.01,
        .most = 1,
        .none = "unpack",
        .help = "how the gradient of a linear layer's weight is computed: from the unpacked value, or by a product of "
                "blocks, at that share of the device's rate",
    }),
    relu_or_anew_option, packed_store_option);

std::vector<TapeOutcome> prune_bsr_tapes(const PartTask& task, const PruneBsrOptions& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const Codec codec{.kind = CodecKind::block_sparse,
                    .block = options.block,
                    .keep = options.keep,
                    .product = options.product.value_or(0)};
  return packed_tapes(task, "prune_bsr", budgets, before, choice_by_pattern("prune_bsr", codec, options));
}

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
        .help = "the value of a block: its mean, its maximum, or the mean weighted by the exponentials of its values",
    }),
    option_of<&PoolOptions::window>({
        .name = "k",
        .least = 2,
        .most = 1024,
        .help = "pixels per side of a block",
    }),
    tensors_option,
    option_of<&PoolOptions::of_means>({
        .name = "product",
        .words = "unpack means",
        .help = "how the gradient of a 1x1 convolution's weight is computed: from the unpacked image, or from block "
                "means of the image and of the output's gradient",
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

enum class GistPrecision : std::uint8_t { full, half, eight_bits };

struct GistOptions {
  double nonzero = 0.5;
  GistPrecision precision = GistPrecision::full;
};

struct GistRule {
  double nonzero = 0.5;
  std::optional<Codec> reduced;  ///< where nothing exact fits
};

const Codec signs{.kind = CodecKind::mask, .bits = 1};
const Codec places_of_pooling{.kind = CodecKind::index, .bits = 4};

bool is_statistic(const SavedUse& use) {
  return use.is_result && (use.by == SavedBy::bn || use.by == SavedBy::ln);
}

std::optional<Codec> gist_choice(const GistRule& rule, const Graph& graph, const SavedTensor& tensor,
                                 const SavedUse& use) {
  const Tensor& value = graph[tensor.tensor];
  if (use.by == SavedBy::pool && value.dtype.starts_with("int")) return places_of_pooling;
  const auto used_by = [&](auto... layers) {
    return std::ranges::any_of(tensor.uses, [&](const SavedUse& each) { return ((each.by == layers) || ...); });
  };
  const bool by_relu =
      std::ranges::any_of(tensor.uses, [](const SavedUse& each) { return each.by == SavedBy::relu && each.is_result; });
  const bool multiplied = used_by(SavedBy::conv, SavedBy::linear);
  if (by_relu && !multiplied && (use.by == SavedBy::relu || use.by == SavedBy::pool)) return signs;
  if (use.by == SavedBy::pool || use.by == SavedBy::loss || use.by == SavedBy::checkpoint || is_statistic(use)) {
    return by_relu && use.by == SavedBy::pool ? std::optional(signs) : std::nullopt;
  }
  const Codec sparse{.kind = CodecKind::compressed_rows, .keep = rule.nonzero};
  const bool pays = !cannot_pack(sparse, graph, value) && packed_bytes(sparse, graph, value) < value.bytes;
  if (by_relu && multiplied && pays) return sparse;
  return use.by == SavedBy::relu && !rule.reduced ? std::nullopt : rule.reduced;
}

constexpr auto gist_options = options_of<GistOptions>(
    option_of<&GistOptions::nonzero>({
        .name = "nonzero",
        .least = 0.01,
        .most = 1,
        .help = "largest share of nonzero values in a ReLU's output: memory is reserved for it where a convolution or "
                "linear layer follows (measure it on your data)",
    }),
    option_of<&GistOptions::precision>({
        .name = "precision",
        .words = "full 16 8",
        .help = "bits of all other saved values: half precision, or an exponent of 4 bits and a fraction of 3",
    }));

std::vector<TapeOutcome> gist_tapes(const PartTask& task, const GistOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  GistRule rule{options.nonzero, std::nullopt};
  if (options.precision != GistPrecision::full) {
    const std::uint32_t bits = options.precision == GistPrecision::half ? 16 : 8;
    rule.reduced = Codec{.kind = CodecKind::cast, .bits = bits, .exponent = bits == 16 ? 5U : 4U};
  }
  return packed_tapes(task, "gist", budgets, before,
                      [&rule](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
                        refuse_if_unfit("gist", graph, saved, "all", Codec{.kind = CodecKind::cast, .bits = 16});
                        return [&rule, &graph](const SavedTensor& tensor, const SavedUse& use) {
                          return gist_choice(rule, graph, tensor, use);
                        };
                      });
}

}  // namespace

// The strategy `quantize`: saved values wait for the backward as numbers of a few bits, whose groups share a scale and
// a minimum. Source: Chen et al., ActNN (ICML 2021); Liu et al., GACT (ICML 2022).
extern constinit const StrategyInfo quantize_strategy{
    .name = "quantize",
    .family = Family::compression,
    .summary = "keeps saved values as numbers of a few bits until the backward",
    .source = "Chen et al., ActNN, ICML 2021; Liu et al., GACT, ICML 2022",
    .options = quantize_options,
    .kind = TapeStrategy{.tapes = by_options<quantize_tapes>, .packs_stages = true},
};

// The strategy `lossless`: saved values wait for the backward without their zeros, of which ReLUs make many: a bit for
// each value, and the values that are not 0. Exact; how many bytes it takes depends on the values, so that a share of
// them is reserved. Source: zero-value coding; Jain et al., Gist (ISCA 2018).
extern constinit const StrategyInfo lossless_strategy{
    .name = "lossless",
    .family = Family::compression,
    .summary = "keeps saved values without their zeros until the backward",
    .source = "zero-value coding; Jain et al., Gist, ISCA 2018",
    .options = lossless_options,
    .kind = TapeStrategy{.tapes = by_options<lossless_tapes>, .packs_stages = true},
};

// The strategy `prune_bsr`: of saved values, as matrices of one row for each vector of the last dimension, only the
// blocks with the largest norms wait for the backward, in block sparse rows; the others are taken for 0. Source: Barley
// and Froening, Compressing the Backward Pass of Large-Scale Neural Architectures by Structured Activation Pruning
// (arXiv 2311.16883, 2023).
extern constinit const StrategyInfo prune_bsr_strategy{
    .name = "prune_bsr",
    .family = Family::compression,
    .summary = "keeps only the blocks of saved values with the largest norms until the backward",
    .source = "Barley and Froening, arXiv 2311.16883, 2023",
    .options = prune_bsr_options,
    .kind = TapeStrategy{.tapes = by_options<prune_bsr_tapes>, .packs_stages = true},
};

// The strategy `pool`: saved pictures wait for the backward as one value a block of pixels, which the backward takes
// for all of them. Source: Barley and Froening, Less Memory Means smaller GPUs: Backpropagation with Compressed
// Activations (arXiv 2409.11902, 2024).
extern constinit const StrategyInfo pool_strategy{
    .name = "pool",
    .family = Family::compression,
    .summary = "keeps one value per block of pixels of each saved image until the backward",
    .source = "Barley and Froening, arXiv 2409.11902, 2024",
    .options = pool_options,
    .kind = TapeStrategy{.tapes = by_options<pool_tapes>, .packs_stages = true},
};

// The strategy `gist`: each saved value waits in the form that suits who made it and who uses it: signs where a pooling
// follows a ReLU, no zeros where a convolution does, fewer bits elsewhere if asked. Source: Jain et al., Gist:
// Efficient Data Encoding for Deep Neural Network Training (ISCA 2018).
extern constinit const StrategyInfo gist_strategy{
    .name = "gist",
    .family = Family::compression,
    .summary =
        "keeps outputs of ReLUs as signs or without zeros, depending on the next layer, and other values in fewer bits "
        "if asked",
    .source = "Jain et al., Gist, ISCA 2018",
    .options = gist_options,
    .kind = TapeStrategy{.tapes = by_options<gist_tapes>},
};

}  // namespace plimsoll
