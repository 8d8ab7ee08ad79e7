#pragma once
// Pipelines that run both ways over the same ranks: each stage of the model is on several ranks, and the micro-batches
// are shared among the ways. Signs as in orders.h.

#include <array>
#include <cstdint>
#include <vector>

#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

/// Chimera, Li and Hoefler 2021: `pairs` pipelines down the ranks and as many up, each begins p / pairs ranks after the
/// one before. Units of p micro-batches follow each other without a gap where F = B. p / pairs is even, m at least
/// 2 pairs.
PipelineOrder chimera_order(std::uint32_t p, std::uint32_t m, std::uint32_t pairs);

/// DualPipe, DeepSeek-AI 2024: one pipeline each way; where both directions meet, a forward and a backward of the other
/// way follow each other. p and m are even, m at least 2p.
PipelineOrder dualpipe_order(std::uint32_t p, std::uint32_t m);

/// Two ways through a pipeline that meet on a rank: its part for each, and the way's micro-batches, from first[way] in
/// steps of `step`.
struct MeetingWays {
  std::array<PartId, 2> parts;
  std::array<std::uint32_t, 2> first;
  std::uint32_t step = 1;
};

/// What a rank of DualPipe does: way 0 has come over `before` of `ranks` ranks that it crosses before way 1 begins;
/// each way has m micro-batches, at least 2 ranks - before - 1.
std::vector<Turn> dualpipe_turns(const MeetingWays&, std::uint32_t ranks, std::uint32_t before, std::uint32_t m);

}  // namespace plimsoll
