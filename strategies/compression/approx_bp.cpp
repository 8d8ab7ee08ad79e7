// The strategy `approx_bp`: the derivative of an activation is taken for that of a sum of three ReLUs, which has four
// steps, so that two bits for each value wait for it. Source: Yang et al., Reducing Fine-Tuning Memory Overhead by
// Approximate and Memory-Sharing Backpropagation (ICML 2024).

#include "strategies/compression/derivative_steps.h"

namespace plimsoll {
namespace {

std::vector<TapeOutcome> approx_bp_tapes(const PartTask& task, const Options&,
                                         std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  return stepped_tapes(task, {.strategy = "approx_bp", .bits = 2}, budgets, before);
}

}  // namespace

extern constinit const StrategyInfo approx_bp_strategy{
    .name = "approx_bp",
    .family = Family::compression,
    .summary = "keeps for activations which of the four steps of a sum of ReLUs each value lies in, 2 bits",
    .source = "Yang et al., Approximate and Memory-Sharing Backpropagation, ICML 2024",
    .kind = TapeStrategy{.tapes = approx_bp_tapes},
};

}  // namespace plimsoll
