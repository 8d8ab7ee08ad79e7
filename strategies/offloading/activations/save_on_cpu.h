#pragma once
// The strategy `save_on_cpu`: every tensor that the forward saves for the backward is copied to the host when it is
// made, and back when the backward wants it; nothing else runs meanwhile. The baseline that users have. Source:
// PyTorch, torch.autograd.graph.save_on_cpu, whose hooks copy on the compute stream.

#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> save_on_cpu_tapes(const PartTask&, const Options&,
                                           std::span<const std::optional<Bytes>> budgets, const Tape* before);

inline constexpr StrategyInfo save_on_cpu_strategy{
    .name = "save_on_cpu",
    .family = Family::offloading,
    .summary = "copies every saved tensor to the host and back, and computes nothing meanwhile",
    .source = "PyTorch, torch.autograd.graph.save_on_cpu",
    .chains_only = false,
    .options = {},
    .tapes = save_on_cpu_tapes,
    .candidates = nullptr,
};

}  // namespace plimsoll
