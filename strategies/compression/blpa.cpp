// The strategy `blpa`: one quantized copy of what a layer makes serves all who need it in the backward, within a fixed
// range, so that nothing is read for it first. Source: Chakrabarti and Moseley, Backprop with Approximate Activations
// for Memory-efficient Network Training (NeurIPS 2019), and its program.

#include <algorithm>

#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

struct BlpaOptions {
  std::uint32_t bits = 4;
};

/// The range is that of normalized values, three standard deviations to each side. Half of the numbers are for values
/// above 0, so that the signs of what a ReLU has made are exact.
Codec blpa_codec(std::uint32_t bits, bool is_rectified) {
  return {.kind = CodecKind::quantize, .bits = bits, .keeps_signs = is_rectified};
}

std::optional<Codec> blpa_choice(std::uint32_t bits, const SavedTensor& tensor, const SavedUse& use) {
  const bool is_rectified =
      std::ranges::any_of(tensor.uses, [](const SavedUse& each) { return each.by == SavedBy::relu && each.is_result; });
  switch (use.by) {
    case SavedBy::conv:
    case SavedBy::linear:
    case SavedBy::relu:
    case SavedBy::pool:
      return blpa_codec(bits, is_rectified);
    case SavedBy::bn:
      return use.is_result ? std::nullopt : std::optional(blpa_codec(bits, is_rectified));
    default:
      return std::nullopt;
  }
}

constexpr auto blpa_options = options_of<BlpaOptions>(option_of<&BlpaOptions::bits>({
    .name = "bits",
    .words = "4 8",
    .help = "bits of a number",
}));

std::vector<TapeOutcome> blpa_tapes(const PartTask& task, const BlpaOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const auto bits = options.bits;
  return packed_tapes(
      task, "blpa", budgets, before, [bits](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
        refuse_if_unfit("blpa", graph, saved, "all", blpa_codec(bits, false));
        return [bits](const SavedTensor& tensor, const SavedUse& use) { return blpa_choice(bits, tensor, use); };
      });
}

}  // namespace

extern constinit const StrategyInfo blpa_strategy{
    .name = "blpa",
    .family = Family::compression,
    .summary = "keeps values of a fixed range in 4 or 8 bits, one copy for all layers that use them",
    .source = "Chakrabarti and Moseley, NeurIPS 2019",
    .options = blpa_options,
    .kind = TapeStrategy{.tapes = by_options<blpa_tapes>},
};

}  // namespace plimsoll
