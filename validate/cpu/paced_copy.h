#pragma once
// A copy between two memories at the pace of a link.

#include <chrono>
#include <cstddef>
#include <functional>

#include "validate/link_pace.h"

namespace plimsoll {

using CopyClock = std::chrono::steady_clock;

/// What a thread that sleeps may take to wake up, where it has nothing else to do.
constexpr std::chrono::microseconds waking{100};

/// Piece by piece, each no sooner there than a link would have it that began at `began`. `nearly_there` is called once,
/// with the date at which all is to be there, `waking` before it where there is so much time.
void paced_copy(std::byte* to, const std::byte* from, Bytes, LinkPace, CopyClock::time_point began,
                const std::function<void(CopyClock::time_point due)>& nearly_there);

/// From now on, and nobody is told.
void paced_copy(std::byte* to, const std::byte* from, Bytes, LinkPace);

/// Makes the calling thread's sleeps end when they should, to about a microsecond.
void sleep_precisely();

}  // namespace plimsoll
