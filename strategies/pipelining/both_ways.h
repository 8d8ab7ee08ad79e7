#pragma once
// Pipelines that run both ways over the same ranks: each stage of the model is on several ranks, and the micro-batches
// are shared among the ways. Signs as in orders.h.

#include <cstdint>

#include "strategies/pipelining/orders.h"

namespace plimsoll {

/// Chimera, Li and Hoefler 2021: `pairs` pipelines down the ranks and as many up, each begins p / pairs ranks after the
/// one before. Units of p micro-batches follow each other without a gap where F = B. p / pairs is even, m at least
/// 2 pairs.
PipelineOrder chimera_order(std::uint32_t p, std::uint32_t m, std::uint32_t pairs);

/// DualPipe, DeepSeek-AI 2024: one pipeline each way; where both directions meet, a forward and a backward of the other
/// way follow each other. p and m are even, m at least 2p.
PipelineOrder dualpipe_order(std::uint32_t p, std::uint32_t m);

}  // namespace plimsoll
