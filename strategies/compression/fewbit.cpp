// The strategy `fewbit`: of what an activation reads in its backward, only which step of a derivative that is constant
// in each waits for it. Sources: Novikov et al., Few-bit Backward: Quantized Gradients of Activation Functions for
// Memory Footprint Reduction (ICML 2023), and its program; of linear layers Bershatsky et al., Memory-efficient
// Backpropagation through Large Linear Layers (arXiv 2201.13195, 2022).

#include "sim/core/names.h"
#include "strategies/compression/derivative_steps.h"

namespace plimsoll {
namespace {

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
        .help = "bits of a value: its step of 2^bits of the derivative",
    }),
    option_of<&FewbitOptions::linear>({
        .name = "linear",
        .least = 0.01,
        .most = 0.99,
        .none = "0",
        .help =
            "of the rows that a linear layer reads, how large a share of random sums of them waits for the gradient "
            "of its weight; 0: the rows themselves",
    }),
    option_of<&FewbitOptions::sums>({
        .name = "sums",
        .values = "rademacher, gaussian or dct",
        .help = "what rows are multiplied by in a sum: random signs, normal random numbers, or a row of the cosine "
                "transform drawn at random",
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

}  // namespace

extern constinit const StrategyInfo fewbit_strategy{
    .name = "fewbit",
    .family = Family::compression,
    .summary = "keeps for activations which step of their derivative each value lies in, 1 to 4 bits",
    .source = "Novikov et al., Few-bit Backward, ICML 2023",
    .options = fewbit_options,
    .kind = TapeStrategy{.tapes = by_options<fewbit_tapes>},
};

}  // namespace plimsoll
