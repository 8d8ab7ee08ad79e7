#pragma once
// What of a timeline counts: who ran when on the host, what was launched, what devices did. Names are understood while
// the file is read and not kept: a trace of a gigabyte holds millions of them.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "validate/profiler/activity.h"
#include "validate/profiler/chrome_trace.h"
#include "validate/profiler/idle_time.h"

namespace plimsoll {

/// What a range of a host's thread says about the work that is launched in it.
enum class RangeRole : std::uint8_t {
  op,
  recorded_op,          ///< an operator that autograd recorded for a backward pass to come
  backward,             ///< autograd runs a node
  checkpoint_backward,  ///< autograd runs a node that first runs its segment's forward again
  update,
  zero_grad,
  communication,  ///< of a host, which waits in it
  label,          ///< says nothing
};

struct HostRange {
  Nanoseconds start = 0, end = 0;
  std::int64_t external_id = -1;
  std::uint32_t thread = 0;
  RangeRole role = RangeRole::op;
};

struct Launch {
  std::int64_t correlation = 0, external_id = -1;
  Nanoseconds date = 0;
  std::uint32_t thread = 0;
  bool of_graph = false;  ///< one launch, many kernels
};

/// A kernel, a copy or a memset.
struct DeviceWork {
  Nanoseconds start = 0, duration = 0;
  std::int64_t correlation = -1;
  bool is_kernel = false;  ///< whose activity is that of its launch; else `activity` is known by its name
  Activity activity = Activity::unmatched;
  std::uint32_t device = 0;  ///< a number for each process of devices
};

/// One `ProfilerStep#number`; in a recording without them, from one optimizer's step to the next.
struct RecordedStep {
  std::int64_t number = 0;
  Nanoseconds start = 0, end = 0;
};

/// Events with a correlation of a category that is neither a launch's nor one whose words are understood.
struct UnknownWork {
  std::size_t events = 0;
  Seconds time;
};

struct Recording {
  std::vector<HostRange> ranges;
  std::vector<Launch> launches;
  std::vector<DeviceWork> work;
  std::vector<RecordedStep> steps;  ///< by start
  std::vector<MemorySample> memory;
  std::size_t updates = 0;    ///< how many times `Optimizer.step` ran; counted where the profiler has no steps
  std::string cut_at;         ///< the optimizer's step that ends each of `steps`; empty: they are the profiler's
  bool names_engine = false;  ///< autograd's engine says what it evaluates, as profilers do since 2021
  std::map<std::string, UnknownWork> unknown;  ///< by category

  // Of a timeline of ours, which says what each of its steps is.
  std::map<Activity, Seconds> own_steps;
  std::vector<BusyTime> own_busy;  ///< of devices; steps on hosts are none
  std::vector<CounterSample> own_memory;

  Nanoseconds begin = 0, end = 0;  ///< of all that counts
};

/// `work of devices of unknown categories: mtia_ccp_events (1 event, 70.00 us)`
std::string unknown_text(const std::map<std::string, UnknownWork>&);

/// Throws InputError where the file is no timeline.
Recording read_recording(const std::filesystem::path&);

}  // namespace plimsoll
