// The strategy `acgc`: saved values wait as numbers of a few bits, by a scale for each channel. Source: Evans and
// Aamodt, AC-GC: Lossy Activation Compression with Guaranteed Convergence (NeurIPS 2021), and its program.

#include <algorithm>
#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

constexpr std::uint32_t bytes_of_scale = 4;  // the largest absolute value of a channel, in fp32

struct AcgcRule {
  std::uint32_t bits = 8;
  double nonzero = 1;  ///< below 1: what ReLUs make has a mask of its zeros
  std::optional<Codec> relu;
};

Codec acgc_codec(const AcgcRule& rule, const Tensor& tensor, bool channels_last, bool has_zeros) {
  const std::vector<std::int64_t>& shape = tensor.shape;
  const bool are_second = shape.size() == 4 && !channels_last;
  const std::int64_t channels = shape.empty() ? 1 : are_second ? shape[1] : shape.back();
  Codec codec{.kind = CodecKind::quantize,
              .bits = rule.bits,
              .parts = static_cast<std::uint32_t>(channels),
              .group_bytes = bytes_of_scale};
  if (has_zeros && rule.nonzero < 1) {
    codec.keeps_signs = codec.zero_mask = true;
    codec.keep = rule.nonzero;
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

constexpr std::array acgc_options{
    OptionInfo{"bits", "8", "a whole number from 2 to 16", "bits of a number", integer_between<2, 16>},
    OptionInfo{"nonzero", "1", "a number from 0.01 to 1",
               "below 1: what a ReLU has made waits as a bit for each value and numbers for those that are not 0, so "
               "many of all at most (measure it on your data)",
               number_between<1, 100, 100>},
    relu_option,
};

std::vector<TapeOutcome> acgc_tapes(const PartTask& task, const Options& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const AcgcRule rule{static_cast<std::uint32_t>(options.integer("bits")), options.number("nonzero"),
                      relu_codec(options)};
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
    .chains_only = false,
    .options = acgc_options,
    .tapes = acgc_tapes,
    .candidates = nullptr,
};

}  // namespace plimsoll
