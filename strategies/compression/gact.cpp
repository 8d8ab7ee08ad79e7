// The strategy `gact`: every saved tensor of floating point numbers with two to four dimensions is quantized, whichever
// layer saves it. Source: Liu et al., GACT: Activation Compressed Training for Generic Network Architectures (ICML
// 2022), and its program.

#include "sim/core/optimizer.h"
#include "strategies/compression/packing.h"
#include "strategies/compression/sensitivity_runs.h"

namespace plimsoll {
namespace {

struct GactOptions : PackedOptions {
  std::uint32_t bits = 4;
  std::int64_t every = 1000;
};

/// Scale and minimum in the tensor's dtype; the tensor is padded to whole groups.
Codec gact_codec(const Graph& graph, const Tensor& tensor, std::uint32_t bits, std::uint32_t copy) {
  const std::int64_t each = bytes_of_dtype(dtype_of(graph, tensor)).value_or(4);
  return {.kind = CodecKind::quantize,
          .bits = bits,
          .group = 256,
          .group_bytes = static_cast<std::uint32_t>(2 * each),
          .padding = Padding::tensor,
          .copy = copy};
}

constexpr auto gact_options = options_of<GactOptions>(
    option_of<&GactOptions::bits>({
        .name = "bits",
        .words = "1 2 4 8",
        .help = "bits of a number, the same for all tensors",
    }),
    option_of<&GactOptions::every>({
        .name = "every",
        .least = 0,
        .most = 1'000'000'000,
        .values = "a whole number from 0",
        .help = "iterations from one choice of bits to the next, which takes three runs more for each packed value; 0: "
                "bits are chosen once for all",
    }),
    packed_store_option);

std::vector<TapeOutcome> gact_tapes(const PartTask& task, const GactOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const auto bits = options.bits;
  const SensitivityRuns runs{.every = options.every};
  const bool of_layer = options.of_layer;
  const ChoiceOf choice = [bits, runs, of_layer](const Graph& graph, std::span<const SavedTensor> saved) {
    refuse_if_unfit("gact", graph, saved, "all", Codec{.kind = CodecKind::quantize, .bits = bits});
    PackingChoice made(
        [bits, of_layer, &graph](const SavedTensor& tensor, const SavedUse& use) -> std::optional<Codec> {
          const std::size_t dimensions = graph[tensor.tensor].shape.size();
          if (use.by == SavedBy::checkpoint || dimensions < 2 || dimensions > 4) return std::nullopt;
          const auto number = static_cast<std::uint32_t>(&use - tensor.uses.data());
          return gact_codec(graph, graph[tensor.tensor], bits, of_layer ? number : 0);
        });
    charge(made, "gact", runs);
    return made;
  };
  return packed_tapes(task, "gact", budgets, before, choice);
}

}  // namespace

extern constinit const StrategyInfo gact_strategy{
    .name = "gact",
    .family = Family::compression,
    .summary = "keeps every saved tensor of two to four dimensions in a few bits until the backward",
    .source = "Liu et al., GACT, ICML 2022",
    .options = gact_options,
    .kind = TapeStrategy{.tapes = by_options<gact_tapes>, .packs_stages = true},
};

}  // namespace plimsoll
