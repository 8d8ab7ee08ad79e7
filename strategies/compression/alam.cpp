// The strategy `alam`: saved tensors as quantized means of four values in a row, which the backward takes for all four.
// Source: Woo et al., ALAM: Averaged Low-Precision Activation for Memory-Efficient Training of Transformer Models (ICLR
// 2024), and its program.

#include "strategies/compression/packing.h"
#include "strategies/compression/sensitivity_runs.h"

namespace plimsoll {
namespace {

struct AlamOptions {
  std::uint32_t bits = 2;
  std::int64_t iterations = 0;
};

/// Scale and minimum in fp32; the means are padded to whole groups.
Codec alam_codec(std::uint32_t bits) {
  return {.kind = CodecKind::quantize,
          .bits = bits,
          .group = 128,
          .group_bytes = 8,
          .averaged = 4,
          .padding = Padding::tensor};
}

constexpr auto alam_options = options_of<AlamOptions>(
    option_of<&AlamOptions::bits>({
        .name = "bits",
        .words = "1 2 4 8",
        .help = "bits of a mean, the same for all tensors",
    }),
    option_of<&AlamOptions::iterations>({
        .name = "iterations",
        .least = 0,
        .most = 1'000'000'000,
        .values = "a whole number from 0",
        .help =
            "of the whole training, in which sensitivities are found twice, by three runs more for each packed value; "
            "0: they are loaded",
    }));

std::vector<TapeOutcome> alam_tapes(const PartTask& task, const AlamOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const auto bits = options.bits;
  const SensitivityRuns runs{.every = (options.iterations + 1) / 2};
  const ChoiceOf choice = [bits, runs](const Graph& graph, std::span<const SavedTensor> saved) {
    refuse_if_unfit("alam", graph, saved, "all", alam_codec(bits));
    PackingChoice made([bits, &graph](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
      const std::size_t dimensions = graph[tensor.tensor].shape.size();
      if (use.by == SavedBy::checkpoint || dimensions < 2 || dimensions > 4) return std::nullopt;
      return alam_codec(bits);
    });
    charge(made, "alam", runs);
    return made;
  };
  return packed_tapes(task, "alam", budgets, before, choice);
}

}  // namespace

extern constinit const StrategyInfo alam_strategy{
    .name = "alam",
    .family = Family::compression,
    .summary = "keeps saved tensors as means of four values in a few bits until the backward",
    .source = "Woo et al., ALAM, ICLR 2024",
    .options = alam_options,
    .kind = TapeStrategy{.tapes = by_options<alam_tapes>, .packs_stages = true},
};

}  // namespace plimsoll
