// The strategy `gact`: every saved tensor of floating point numbers with two to four dimensions is quantized, whichever
// layer saves it. Source: Liu et al., GACT: Activation Compressed Training for Generic Network Architectures (ICML
// 2022), and its program.

#include <array>

#include "sim/core/optimizer.h"
#include "strategies/api/option_rules.h"
#include "strategies/compression/packing.h"
#include "strategies/compression/sensitivity_runs.h"

namespace plimsoll {
namespace {

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

constexpr std::array gact_options{
    text_option("bits", "4", "1, 2, 4 or 8", "bits of a number, the same for all tensors",
                [](std::string_view text) { return text == "1" || text == "2" || text == "4" || text == "8"; }),
    text_option("every", "1000", "a whole number from 0",
                "iterations from one choice of bits to the next, which takes three runs more for each packed value; 0: "
                "bits are chosen once for all",
                integer_between<0, 1'000'000'000>),
    packed_store_option};

std::vector<TapeOutcome> gact_tapes(const PartTask& task, const Options& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const auto bits = static_cast<std::uint32_t>(options.integer("bits"));
  const SensitivityRuns runs{.every = options.integer("every")};
  const bool of_layer = options.text("store") == "layer";
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
    .chains_only = false,
    .options = gact_options,
    .tapes = gact_tapes,
    .candidates = nullptr,
    .packs_stages = true,
};

}  // namespace plimsoll
