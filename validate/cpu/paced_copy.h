#pragma once
// A copy between two memories at the pace of a link.

#include <cstddef>

#include "validate/link_pace.h"

namespace plimsoll {

/// Piece by piece, each no sooner there than the link would have it.
void paced_copy(std::byte* to, const std::byte* from, Bytes, LinkPace);

/// Makes the calling thread's sleeps end when they should, to about a microsecond.
void sleep_precisely();

}  // namespace plimsoll
