#pragma once
// Timelines in Chrome's trace format, event by event: ours, those of PyTorch's profilers (Kineto's object with
// `traceEvents`, the bare list of the older one), gzip-compressed or not, of any size.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "sim/core/units.h"

namespace plimsoll {

/// Dates and durations as traces have them: microseconds with three decimals.
using Nanoseconds = std::int64_t;

constexpr Seconds seconds(Nanoseconds t) {
  return {static_cast<double>(t) * 1e-9};
}

struct TraceSlice {
  std::string name, category, process;
  std::uint32_t thread = 0;  ///< a number for each pair of process and thread
  Nanoseconds start = 0, duration = 0;
  // What a profiler adds; unset where it does not.
  std::optional<std::int64_t> correlation, external_id, sequence_number, forward_thread, stream;
  std::string shapes, types, strides, values;  ///< of an op's arguments, as JSON; only where the visitor wants them

  Nanoseconds end() const { return start + duration; }
};

/// What an allocator held from a date on.
struct MemorySample {
  Nanoseconds date = 0;
  Bytes total;
  std::int64_t device_type = 0, device = 0;  ///< as the profiler counts them; type 0 is the host
  Bytes change;                              ///< below 0 where it was freed
  std::int64_t address = 0;
  std::int64_t order = 0;    ///< of events of one date
  std::uint32_t thread = 0;  ///< as of slices
};

/// The sum of a counter's stacked values. Counters of other names than the file's first are not handed out.
struct CounterSample {
  Nanoseconds date = 0;
  Bytes sum;
};

/// What a file calls a thread; ours do so before its slices.
struct ThreadName {
  std::uint32_t thread = 0;
  std::string name;
};

struct TraceVisitor {
  std::function<void(const TraceSlice&)> slice;
  std::function<void(const ThreadName&)> thread_name;
  std::function<void(const MemorySample&)> memory;
  std::function<void(const CounterSample&)> counter;
  bool wants_arguments = false;  ///< of ops: shapes, types, strides and values
};

/// In the order of the file. Throws InputError, with the place, where the text is no such file.
void read_chrome_trace(const std::filesystem::path&, const TraceVisitor&);

}  // namespace plimsoll
