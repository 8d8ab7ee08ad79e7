#include "validate/cpu/paced_copy.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace plimsoll {

void paced_copy(std::byte* to, const std::byte* from, Bytes bytes, LinkPace pace, CopyClock::time_point began,
                const std::function<void(CopyClock::time_point due)>& nearly_there) {
  constexpr std::int64_t piece = 1 << 18;
  CopyClock::time_point due_at = began;
  std::int64_t copied = 0;
  do {
    std::this_thread::sleep_until(due_at);
    const std::int64_t size = std::min(piece, bytes.count - copied);
    std::memcpy(to + copied, from + copied, static_cast<std::size_t>(size));
    copied += size;
    const Seconds due = pace.latency + Bytes{copied} / pace.bandwidth;
    due_at = began + std::chrono::duration_cast<CopyClock::duration>(std::chrono::duration<double>(due.value));
  } while (copied < bytes.count);
  std::this_thread::sleep_until(due_at - waking);
  nearly_there(due_at);
  std::this_thread::sleep_until(due_at);
}

void paced_copy(std::byte* to, const std::byte* from, Bytes bytes, LinkPace pace) {
  paced_copy(to, from, bytes, pace, CopyClock::now(), [](CopyClock::time_point) {});
}

void sleep_precisely() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // ns
}

}  // namespace plimsoll
