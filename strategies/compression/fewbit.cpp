// The strategy `fewbit`: of what an activation reads in its backward, only which step of a derivative that is constant
// in each waits for it. Sources: Novikov et al., Few-bit Backward: Quantized Gradients of Activation Functions for
// Memory Footprint Reduction (ICML 2023), and its program; of linear layers Bershatsky et al., Memory-efficient
// Backpropagation through Large Linear Layers (arXiv 2201.13195, 2022).

#include <array>

#include "sim/core/names.h"
#include "strategies/api/option_rules.h"
#include "strategies/compression/derivative_steps.h"

namespace plimsoll {
namespace {

constexpr std::array fewbit_options{
    text_option("bits", "3", "1, 2, 3 or 4", "bits of a value: its step of 2^bits of the derivative",
                integer_between<1, 4>),
    text_option(
        "linear", "0", "0 or a number from 0.01 to 0.99",
        "of the rows that a linear layer reads, how large a share of random sums of them waits for the gradient "
        "of its weight; 0: the rows themselves",
        [](std::string_view text) { return text == "0" || number_between<1, 99, 100>(text); }),
    text_option("sums", "rademacher", "rademacher, gaussian or dct",
                "what rows are multiplied by in a sum: random signs, normal random numbers, or a row of the cosine "
                "transform drawn at random",
                [](std::string_view text) { return from_name<Projection>(text).has_value(); })};

std::vector<TapeOutcome> fewbit_tapes(const PartTask& task, const Options& options,
                                      std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const SteppedRule rule{.strategy = "fewbit",
                         .bits = static_cast<std::uint32_t>(options.integer("bits")),
                         .takes_relus = true,
                         .projected = options.number("linear"),
                         .sums = *from_name<Projection>(options.text("sums"))};
  return stepped_tapes(task, rule, budgets, before);
}

}  // namespace

extern constinit const StrategyInfo fewbit_strategy{
    .name = "fewbit",
    .family = Family::compression,
    .summary = "keeps for activations which step of their derivative each value lies in, 1 to 4 bits",
    .source = "Novikov et al., Few-bit Backward, ICML 2023",
    .chains_only = false,
    .options = fewbit_options,
    .tapes = fewbit_tapes,
    .candidates = nullptr,
};

}  // namespace plimsoll
