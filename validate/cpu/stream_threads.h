#pragma once
// How the threads of streams wait for each other: asleep, but awake shortly before what they wait for where that is
// known.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "sim/core/ids.h"
#include "validate/cpu/paced_copy.h"

namespace plimsoll {

/// One thread a stream. All is called under the lock that `wait` is given.
class StreamThreads {
 public:
  explicit StreamThreads(std::size_t streams) : sleeping_(streams), changes_(streams), awake_until_(streams) {}

  /// What the stream's thread waits for may be there.
  void wake(StreamId s) {
    ++changes_[s.index];
    sleeping_[s.index].notify_one();
  }

  void wake_all() {
    for (std::uint32_t s = 0; s < sleeping_.size(); ++s) wake(StreamId{s});
  }

  /// What the stream's thread waits for is due: until the date it does not sleep.
  void keep_awake(StreamId s, CopyClock::time_point until) {
    awake_until_[s.index] = until;
    sleeping_[s.index].notify_one();
  }

  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, StreamId s, Condition condition) {
    while (!condition()) {
      const CopyClock::time_point until = awake_until_[s.index];
      if (CopyClock::now() >= until) {
        sleeping_[s.index].wait(lock);
        continue;
      }
      const std::uint32_t seen = changes_[s.index];
      lock.unlock();
      while (changes_[s.index] == seen && CopyClock::now() < until) std::this_thread::yield();
      while (!lock.try_lock()) std::this_thread::yield();  // who finds it locked otherwise, is put to sleep
    }
  }

 private:
  std::vector<std::condition_variable> sleeping_;
  std::vector<std::atomic<std::uint32_t>> changes_;  ///< how often the stream's thread was woken
  std::vector<CopyClock::time_point> awake_until_;
};

}  // namespace plimsoll
