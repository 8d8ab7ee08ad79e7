// Saved values in as many bits as runs of the program show that each needs: `gact` and `alam`.

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>

#include "sim/core/optimizer.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

// Runs that a compression program adds now and then to find how many bits each saved value needs: what they take in the
// mean of all iterations, and in the worst one.

/// For every packed value so many forwards and backwards more, once every so many iterations.
struct SensitivityRuns {
  std::int64_t of_value = 3, every = 1000;
};

Seconds forward_and_backward(const OffloadModel& model) {
  return std::accumulate(model.time.begin(), model.time.end(), Seconds{0});
}

Seconds mean_of_runs(const SensitivityRuns& runs, const OffloadModel& model) {
  return static_cast<double>(runs.of_value) / static_cast<double>(runs.every) * forward_and_backward(model);
}

std::string note_of(std::string_view strategy, const SensitivityRuns& runs, const OffloadModel& model,
                    std::size_t packed) {
  const auto more = static_cast<double>(runs.of_value) * static_cast<double>(packed);
  return fmt::format(
      "{} finds the bits of {} values by {:.0f} runs every {} iterations: {:.1f} % more time in the mean, which is "
      "charged where values are packed, and {:.3g} s more in the iteration that does so",
      strategy, packed, more, runs.every, 100 * more / static_cast<double>(runs.every),
      more * forward_and_backward(model).value);
}

/// Charges the mean to the packing of each value, and notes the worst iteration; nothing where `every` is 0. A run
/// takes what the tape takes without packing.
void charge(PackingChoice& choice, std::string_view strategy, const SensitivityRuns& runs) {
  if (runs.every == 0) return;
  choice.overhead = [runs](const OffloadModel& model, const SavedUse&) { return mean_of_runs(runs, model); };
  choice.note = [runs, name = std::string(strategy)](const OffloadModel& model, std::size_t packed) {
    return note_of(name, runs, model, packed);
  };
}

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

constexpr auto gact_options =
    options_of<GactOptions>(option_of<&GactOptions::bits>({
                                .name = "bits",
                                .words = "1 2 4 8",
                                .help = "bits of a number, the same for all tensors",
                            }),
                            option_of<&GactOptions::every>({
                                .name = "every",
                                .least = 0,
                                .most = 1'000'000'000,
                                .values = "a whole number from 0",
                                .help = "iterations between choices of bits; each choice takes three more runs per "
                                        "packed value; 0: bits are chosen once",
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

constexpr auto alam_options =
    options_of<AlamOptions>(option_of<&AlamOptions::bits>({
                                .name = "bits",
                                .words = "1 2 4 8",
                                .help = "bits of a mean, the same for all tensors",
                            }),
                            option_of<&AlamOptions::iterations>({
                                .name = "iterations",
                                .least = 0,
                                .most = 1'000'000'000,
                                .values = "a whole number from 0",
                                .help = "iterations of the whole training; sensitivities are found twice in it, by "
                                        "three more runs per packed value; 0: they are loaded",
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

// The strategy `gact`: every saved tensor of floating point numbers with two to four dimensions is quantized, whichever
// layer saves it. Source: Liu et al., GACT: Activation Compressed Training for Generic Network Architectures (ICML
// 2022), and its program.
extern constinit const StrategyInfo gact_strategy{
    .name = "gact",
    .family = Family::compression,
    .summary = "keeps every saved tensor of two to four dimensions in a few bits until the backward",
    .source = "Liu et al., GACT, ICML 2022",
    .options = gact_options,
    .kind = TapeStrategy{.tapes = by_options<gact_tapes>, .packs_stages = true},
};

// The strategy `alam`: saved tensors as quantized means of four values in a row, which the backward takes for all four.
// Source: Woo et al., ALAM: Averaged Low-Precision Activation for Memory-Efficient Training of Transformer Models (ICLR
// 2024), and its program.
extern constinit const StrategyInfo alam_strategy{
    .name = "alam",
    .family = Family::compression,
    .summary = "keeps saved tensors as means of four values in a few bits until the backward",
    .source = "Woo et al., ALAM, ICLR 2024",
    .options = alam_options,
    .kind = TapeStrategy{.tapes = by_options<alam_tapes>, .packs_stages = true},
};

}  // namespace plimsoll
