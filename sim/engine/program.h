#pragma once
// A schedule on a platform, flattened to arrays: what both engines run. It holds everything a simulation needs, as
// plain numbers, so that it can be handed to another process.

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/schedule.h"

namespace plimsoll {

/// Dates that differ by no more than this share of them are one date: two ways of adding up the same durations do.
/// A share, since dates of nanoseconds and of months are to be told apart alike.
inline constexpr double same_date = 0x1p-42;

/// "No step", "no route" in the arrays below.
inline constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

/// How a step spends its time.
///   kernel:   a step without a route on a compute stream: its seconds, slowed down by transfers on its device
///   delay:    any other step without a route: its seconds, whatever else happens
///   transfer: the latency of its route and its seconds, then its bytes over the links of the route, which it may have
///             to share; or an update on a host, whose bytes cross the host's processor and memory
enum class StepClass : std::uint8_t { kernel, delay, transfer };

struct ProgramStep {
  double seconds = 0;  ///< kernel, delay: all of it; transfer: what passes before its bytes flow
  double bytes = 0;    ///< that flow; 0 where no other stream's transfers can slow them: `seconds` holds it all
  std::uint32_t stream = 0;
  std::uint32_t next = none;           ///< the step after it on its stream
  std::uint32_t route = none;          ///< of a transfer
  std::uint32_t first_successor = 0;   ///< its steps in `successors` end where those of the next step begin
  std::uint32_t first_allocation = 0;  ///< the same in `allocations`
  std::uint32_t first_free = 0;        ///< the same in `frees`
  std::uint32_t device = none;         ///< of a kernel: whose speed it has
  StepClass kind = StepClass::kernel;

  /// Whether it finishes at the date at which it starts, one round later.
  bool is_instant() const { return seconds == 0 && bytes == 0; }
};

struct ProgramStream {
  std::uint32_t device = 0;
  std::uint32_t memory_bound = none;  ///< the device of its kernels that a memory bounds, where they have one
  std::uint32_t first_step = none;
};

/// The links that bound a flow, memories and processors of hosts among them; its slices end where those of the next
/// route begin. After the schedule's routes come those of updates, one a host.
struct ProgramRoute {
  double bandwidth = 0;  ///< of its slowest link
  std::uint32_t first_link = 0;
  std::uint32_t first_device = 0;
};

/// A device's kernels run at `speeds[k]` while k transfers are in flight there, the last speed for any larger k.
/// Behind the platform's devices come those of kernels that a memory bounds, of devices where these have speeds of
/// their own.
struct ProgramDevice {
  std::uint32_t first_speed = 0;
  std::uint32_t streams = 0, kernel_streams = 0;  ///< all of its streams; those that run kernels
};

struct MemoryChange {
  std::uint32_t memory = 0;
  std::int64_t bytes = 0;
};

/// Every array of things with slices ends with one more that closes the last slice.
struct Program {
  std::vector<ProgramStep> steps;
  std::vector<std::uint32_t> predecessors;  ///< per step: waits, and one for the step before it on its stream
  std::vector<std::uint32_t> successors;    ///< steps that wait for a step, without the next on its stream
  std::vector<MemoryChange> allocations;    ///< at a step's start, one entry a memory
  std::vector<MemoryChange> frees;          ///< at a step's finish, one entry a memory, as positive numbers
  std::vector<ProgramStream> streams;
  std::vector<ProgramRoute> routes;
  std::vector<std::uint32_t> route_links;    ///< limited links only
  std::vector<std::uint32_t> route_devices;  ///< at either end of a route, only those that transfers slow down
  std::vector<double> links;                 ///< bandwidths; a full-duplex link of the platform is two links here, and
                                             ///< what a host's memory and its processor move are one each
  std::vector<ProgramDevice> devices;
  std::vector<double> speeds;
  std::vector<std::int64_t> resident;  ///< per memory: bytes live from the start

  std::uint32_t step_count() const { return static_cast<std::uint32_t>(steps.size() - 1); }
  std::span<const std::uint32_t> successors_of(std::uint32_t step) const {
    return between(successors, steps[step].first_successor, steps[step + 1].first_successor);
  }
  std::span<const MemoryChange> allocations_of(std::uint32_t step) const {
    return between(allocations, steps[step].first_allocation, steps[step + 1].first_allocation);
  }
  std::span<const MemoryChange> frees_of(std::uint32_t step) const {
    return between(frees, steps[step].first_free, steps[step + 1].first_free);
  }
  std::span<const std::uint32_t> links_of(std::uint32_t route) const {
    return between(route_links, routes[route].first_link, routes[route + 1].first_link);
  }
  std::span<const std::uint32_t> slowed_devices_of(std::uint32_t route) const {
    return between(route_devices, routes[route].first_device, routes[route + 1].first_device);
  }
  std::span<const double> speeds_of(std::uint32_t device) const {
    return between(speeds, devices[device].first_speed, devices[device + 1].first_speed);
  }

 private:
  template <class T>
  static std::span<const T> between(const std::vector<T>& list, std::uint32_t first, std::uint32_t end) {
    return {list.data() + first, list.data() + end};
  }
};

/// Whether how long some step takes depends on what else runs: flows over links that others use, kernels on a device
/// that transfers slow down. Where it is not, every engine has the same known dates.
bool is_anything_shared(const Program&);

/// Throws EngineError where the platform has no route for a transfer, or fewer compute streams on a device than the
/// schedule uses there.
Program flatten(const Schedule&, const Platform&);

/// The memories, in order, whose bandwidth may hold back a transfer or update of the schedule, alone or beside others.
std::vector<MemoryId> memories_that_may_bind(const Schedule&, const Platform&);

}  // namespace plimsoll
