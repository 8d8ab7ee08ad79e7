#include "validate/cpu/paced_copy.h"

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace plimsoll {

void paced_copy(std::byte* to, const std::byte* from, Bytes bytes, LinkPace pace) {
  using Clock = std::chrono::steady_clock;
  constexpr std::int64_t piece = 1 << 18;
  const Clock::time_point began = Clock::now();
  std::int64_t copied = 0;
  do {
    const std::int64_t size = std::min(piece, bytes.count - copied);
    std::memcpy(to + copied, from + copied, static_cast<std::size_t>(size));
    copied += size;
    const Seconds due = pace.latency + Bytes{copied} / pace.bandwidth;
    if (due == Seconds{0}) continue;
    std::this_thread::sleep_until(
        began + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due.value)));
  } while (copied < bytes.count);
}

void sleep_precisely() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns
}

}  // namespace plimsoll
