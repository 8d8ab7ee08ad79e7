#pragma once
// What strategies that also offload by themselves are asked.

#include <cstdint>

namespace plimsoll {

/// Whether a strategy moves values to the host by itself; automatic: unless an offloading pass follows it.
enum class OwnMoves : std::uint8_t { automatic, yes, no };

struct OwnMovesOptions {
  OwnMoves offload = OwnMoves::automatic;
};

}  // namespace plimsoll
