#pragma once
// Static memory planning for values that kernels take in one piece although their parts come and go.

#include <span>
#include <vector>

#include "sim/memory/offset_assignment.h"

namespace plimsoll {

/// Each part lies so far above the lowest one.
struct LivePiece {
  struct Part {
    Lifetime life;
    Bytes above;
  };
  std::vector<Part> parts;
};

/// Offsets of whole pieces, multiples of `unit`. One after the other, each as low as all its parts allow, by size,
/// area, length of life or begin, whichever gives the smallest plan. Then, `tries` times, a piece that reaches the top
/// comes earlier, which stays where the plan is no larger for it.
OffsetPlan assign_pieces(std::span<const LivePiece>, Bytes unit, std::size_t tries = 0);

}  // namespace plimsoll
