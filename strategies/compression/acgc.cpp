// The strategy `acgc`: saved values wait as numbers of a few bits, by a scale for each channel. Source: Evans and
// Aamodt, AC-GC: Lossy Activation Compression with Guaranteed Convergence (NeurIPS 2021), and its program.

#include <algorithm>

#include "sim/codec/predicted_error.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

struct AcgcOptions : PackedOptions {
  std::optional<std::uint32_t> bits = 8;
  double error = 0.1;
  double nonzero = 1;
};

constexpr std::uint32_t bytes_of_scale = 4;  // the largest absolute value of a channel, in fp32

constexpr std::uint32_t fewest_bits = 2, most_bits = 16;

struct AcgcRule {
  std::uint32_t bits = 8;  ///< 0: as few as keep to the error
  double error = 0.1;      ///< of a layer's gradient, relative, by what white noise loses
  double nonzero = 1;      ///< below 1: what ReLUs make has a mask of its zeros
  std::optional<Codec> relu;
};

/// The fewest for which what is lost of white noise, which the gradient of a layer's weight loses likewise, is at most
/// the error; as many as there are, where it is more.
std::uint32_t bits_within(double error, Codec codec, std::int64_t values, bool has_zeros) {
  codec.group = static_cast<std::uint32_t>(std::max<std::int64_t>(1, values / codec.parts));
  codec.bits = fewest_bits;
  const Noise noise = has_zeros ? Noise::rectified : Noise::normal;
  while (codec.bits < most_bits && codec_error(codec, noise) > error) ++codec.bits;
  return codec.bits;
}

Codec acgc_codec(const AcgcRule& rule, const Tensor& tensor, bool channels_last, bool has_zeros) {
  const std::vector<std::int64_t>& shape = tensor.shape;
  const bool are_second = shape.size() == 4 && !channels_last;
  const std::int64_t channels = shape.empty() ? 1 : are_second ? shape[1] : shape.back();
  Codec codec{.kind = CodecKind::quantize,
              .channels_last = shape.size() == 4 && channels_last,
              .bits = rule.bits,
              .parts = static_cast<std::uint32_t>(channels),
              .group_bytes = bytes_of_scale};
  if (has_zeros && rule.nonzero < 1) {
    codec.keeps_signs = codec.zero_mask = true;
    codec.keep = rule.nonzero;
  }
  if (rule.bits == 0 && !shape.empty()) {
    codec.bits = bits_within(rule.error, codec, rows_of(tensor) * shape.back(), has_zeros);
  }
  return codec;
}

std::optional<Codec> acgc_choice(const AcgcRule& rule, const Graph& graph, bool channels_last,
                                 const SavedTensor& tensor, const SavedUse& use) {
  const bool by_relu =
      std::ranges::any_of(tensor.uses, [](const SavedUse& each) { return each.by == SavedBy::relu && each.is_result; });
  const Codec codec = acgc_codec(rule, graph[tensor.tensor], channels_last, by_relu);
  switch (use.by) {
    case SavedBy::conv:
    case SavedBy::linear:
      return codec;
    case SavedBy::bn:
      return use.is_result ? std::nullopt : std::optional(codec);
    case SavedBy::relu:
    case SavedBy::pool:
      return codec.zero_mask ? std::optional(codec) : rule.relu;
    default:
      return std::nullopt;
  }
}

constexpr auto acgc_options = options_of<AcgcOptions>(
    option_of<&AcgcOptions::bits>({
        .name = "bits",
        .least = fewest_bits,
        .most = most_bits,
        .values = "auto or a whole number from 2 to 16",
        .help = "bits of a number; auto: of each value as few as keep to the error",
    }),
    option_of<&AcgcOptions::error>({
        .name = "error",
        .least = 0.0001,
        .most = 1,
        .help =
            "with bits=auto: the largest relative error of a value, as white noise has it, and so of the gradient of "
            "its layer's weight",
    }),
    option_of<&AcgcOptions::nonzero>({
        .name = "nonzero",
        .least = 0.01,
        .most = 1,
        .help = "below 1: what a ReLU has made waits as a bit for each value and numbers for those that are not 0, so "
                "many of all at most (measure it on your data)",
    }),
    relu_option);

std::vector<TapeOutcome> acgc_tapes(const PartTask& task, const AcgcOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const AcgcRule rule{.bits = options.bits.value_or(0),
                      .error = options.error,
                      .nonzero = options.nonzero,
                      .relu = relu_codec(options)};
  return packed_tapes(
      task, "acgc", budgets, before, [&rule](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
        refuse_if_unfit("acgc", graph, saved, "all", Codec{.kind = CodecKind::quantize});
        return [&rule, &graph, last = has_channels_last(graph)](const SavedTensor& tensor, const SavedUse& use) {
          return acgc_choice(rule, graph, last, tensor, use);
        };
      });
}

}  // namespace

extern constinit const StrategyInfo acgc_strategy{
    .name = "acgc",
    .family = Family::compression,
    .summary =
        "keeps inputs of layers as numbers of a few bits by a scale for each channel, without their zeros if asked",
    .source = "Evans and Aamodt, AC-GC, NeurIPS 2021",
    .options = acgc_options,
    .kind = TapeStrategy{.tapes = by_options<acgc_tapes>},
};

}  // namespace plimsoll
