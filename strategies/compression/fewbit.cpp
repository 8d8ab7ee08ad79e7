// Activations whose backward gets, instead of a saved value, the step of a derivative in which it lies:
// `fewbit` and `approx_bp`.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "strategies/compression/packing.h"

namespace plimsoll {
namespace {

struct SteppedRule {
  std::string_view strategy;
  std::uint32_t bits = 3;    ///< of an activation's value: its step of 2^bits of the derivative
  bool takes_relus = false;  ///< from a bit for each value, exactly
  double projected = 0;      ///< above 0: of the rows that a linear layer reads, the share of random sums of them,
  Projection sums = Projection::rademacher;  ///< of this kind
};

/// For what a use can take a packed form in the place of the value; nothing where for none.
std::optional<Codec> codec_for(const SteppedRule& rule, const Graph& graph, const SavedTensor& tensor,
                               const SavedUse& use) {
  const Op& op = graph[use.op];
  if (is_gradient_of_activation(op)) return Codec{.kind = CodecKind::step, .bits = rule.bits};
  if (rule.takes_relus && use.by == SavedBy::relu) return Codec{.kind = CodecKind::mask, .bits = 1};
  const Tensor& value = graph[tensor.tensor];
  if (rule.projected == 0 || !sums_over_rows(graph, op, value)) return std::nullopt;
  const double one = 1 / static_cast<double>(rows_of(value));
  return Codec{.kind = CodecKind::projection, .sums = rule.sums, .keep = std::max(rule.projected, one)};
}

/// Throws InputError where no use can.
void refuse_without_use(const SteppedRule& rule, const Graph& graph, std::span<const SavedTensor> saved) {
  std::optional<std::string> why;
  for (const SavedTensor& tensor : saved) {
    for (const SavedUse& use : tensor.uses) {
      const std::optional<Codec> codec = codec_for(rule, graph, tensor, use);
      if (!codec) continue;
      const std::optional<std::string> cannot = cannot_pack(*codec, graph, graph[tensor.tensor]);
      if (!cannot) return;
      if (!why) why = fmt::format("{} {}", rule.strategy, *cannot);
    }
  }
  throw InputError(why.value_or(fmt::format("{}: '{}' saves nothing for an activation such as gelu, silu or tanh{}{}",
                                            rule.strategy, graph.name, rule.takes_relus ? " or relu" : "",
                                            rule.projected > 0 ? ", or for a linear layer" : "")));
}

/// One plan whatever the budget. Throws InputError where no value is taken by the rule.
std::vector<TapeOutcome> stepped_tapes(const PartTask& task, const SteppedRule& rule,
                                       std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const ChoiceOf choice = [rule](const Graph& graph, std::span<const SavedTensor> saved) -> CodecChoice {
    refuse_without_use(rule, graph, saved);
    return
        [rule, &graph](const SavedTensor& tensor, const SavedUse& use) { return codec_for(rule, graph, tensor, use); };
  };
  return packed_tapes(task, rule.strategy, budgets, before, choice);
}

struct FewbitOptions {
  std::uint32_t bits = 3;
  std::optional<double> linear;  ///< unset: the rows themselves
  Projection sums = Projection::rademacher;
};

constexpr auto fewbit_options = options_of<FewbitOptions>(
    option_of<&FewbitOptions::bits>({
        .name = "bits",
        .least = 1,
        .most = 4,
        .values = "1, 2, 3 or 4",
        .help = "bits of a value, which select one of 2^bits steps of the derivative",
    }),
    option_of<&FewbitOptions::linear>({
        .name = "linear",
        .least = 0.01,
        .most = 0.99,
        .none = "0",
        .help = "number of random sums of a linear layer's input rows that are kept for the gradient of its weight, as "
                "a share of the rows; 0: the rows themselves are kept",
    }),
    option_of<&FewbitOptions::sums>({
        .name = "sums",
        .values = "rademacher, gaussian or dct",
        .help = "factors of the rows in a sum: random signs, normal random numbers, or a random row of the cosine "
                "transform",
    }));

std::vector<TapeOutcome> fewbit_tapes(const PartTask& task, const FewbitOptions& options,
                                      std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const SteppedRule rule{.strategy = "fewbit",
                         .bits = options.bits,
                         .takes_relus = true,
                         .projected = options.linear.value_or(0),
                         .sums = options.sums};
  return stepped_tapes(task, rule, budgets, before);
}

std::vector<TapeOutcome> approx_bp_tapes(const PartTask& task, const Options&,
                                         std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return stepped_tapes(task, {.strategy = "approx_bp", .bits = 2}, budgets, before);
}

}  // namespace

// The strategy `fewbit`: of what an activation reads in its backward, only which step of a derivative that is constant
// in each waits for it. Sources: Novikov et al., Few-bit Backward: Quantized Gradients of Activation Functions for
// Memory Footprint Reduction (ICML 2023), and its program; of linear layers Bershatsky et al., Memory-efficient
// Backpropagation through Large Linear Layers (arXiv 2201.13195, 2022).
extern constinit const StrategyInfo fewbit_strategy{
    .name = "fewbit",
    .family = Family::compression,
    .summary = "keeps 1 to 4 bits of each input of an activation function: the step of the derivative that it lies in",
    .source = "Novikov et al., Few-bit Backward, ICML 2023",
    .options = fewbit_options,
    .kind = TapeStrategy{.tapes = by_options<fewbit_tapes>},
};

// The strategy `approx_bp`: the derivative of an activation is taken for that of a sum of three ReLUs, which has four
// steps, so that two bits for each value wait for it. Source: Yang et al., Reducing Fine-Tuning Memory Overhead by
// Approximate and Memory-Sharing Backpropagation (ICML 2024).
extern constinit const StrategyInfo approx_bp_strategy{
    .name = "approx_bp",
    .family = Family::compression,
    .summary =
        "keeps 2 bits of each input of an activation function: which of the four steps of a sum of ReLUs it lies in",
    .source = "Yang et al., Approximate and Memory-Sharing Backpropagation, ICML 2024",
    .kind = TapeStrategy{.tapes = approx_bp_tapes},
};

}  // namespace plimsoll
