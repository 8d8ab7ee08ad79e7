#pragma once
// Random schedules on random platforms, made from a seed: the same everywhere.

#include <cstdint>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

struct RandomScheduleOptions {
  std::uint64_t seed = 0;
  std::uint32_t most_devices = 24;
  std::uint32_t most_steps = 300;
  /// Durations, latencies, bytes, bandwidths and slow-downs are powers of two or few multiples of one, so that many
  /// events tie and sums are exact.
  bool on_grid = false;
  /// Durations and latencies from nanoseconds to months (1e-9 to 1e7 s), bytes from 1 to 1e12, bandwidths from 1e5 to
  /// 1e13 B/s, every order of magnitude as often.
  bool all_scales = false;
};

struct RandomSchedule {
  Platform platform;
  Schedule schedule;
};

/// One to `most_devices` devices with one to three compute streams, up to three copy streams and one of updates on the
/// host each; host memories, some with a bandwidth and a rate of updates, and switches; links of full and half duplex,
/// some without limit, some with latency; slow-down tables. Steps wait at random, take no time now and then, allocate
/// and free; what frees a buffer waits for what allocated it.
RandomSchedule random_schedule(const RandomScheduleOptions&);

}  // namespace plimsoll
