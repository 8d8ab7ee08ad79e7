#pragma once
// Platforms and schedules small enough to work out by hand.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/timeline.h"
#include "sim/lower/schedule_builder.h"

namespace plimsoll::test {

inline constexpr auto down = way::device_to_host;
inline constexpr auto up = way::host_to_device;
inline constexpr std::int64_t GB = 1'000'000'000;

/// Vertices are memories first (one a device, then others), then switches.
class PlatformBuilder {
 public:
  explicit PlatformBuilder(std::uint32_t devices, std::uint32_t other_memories = 1, std::uint32_t switches = 0) {
    platform_.name = "small";
    for (std::uint32_t d = 0; d < devices; ++d) {
      Device device;
      device.name = "gpu" + std::to_string(d);
      device.memory = {d};
      add_memory(device.name, DeviceId{d});
      platform_.devices.push_back(std::move(device));
    }
    for (std::uint32_t m = 0; m < other_memories; ++m) add_memory("host" + std::to_string(m), {});
    for (std::uint32_t s = 0; s < switches; ++s) platform_.vertices.push_back({{}, "switch" + std::to_string(s)});
  }

  PlatformBuilder& link(std::uint32_t from, std::uint32_t to, double bandwidth, double latency = 0,
                        bool full_duplex = true) {
    platform_.links.push_back({.name = "link" + std::to_string(platform_.links.size()),
                               .from = from,
                               .to = to,
                               .bandwidth = {bandwidth},
                               .latency = {latency},
                               .full_duplex = full_duplex});
    return *this;
  }
  PlatformBuilder& slow_down(std::uint32_t device, std::vector<double> table) {
    platform_.devices[device].overlap_slowdown = std::move(table);
    return *this;
  }
  PlatformBuilder& slow_down_memory_bound(std::uint32_t device, std::vector<double> table) {
    platform_.devices[device].memory_overlap_slowdown = std::move(table);
    return *this;
  }
  PlatformBuilder& compute_streams(std::uint32_t device, std::uint32_t count) {
    platform_.devices[device].compute_streams = count;
    return *this;
  }

  /// A memory's bandwidth, and the bytes of parameters that its host updates a second.
  PlatformBuilder& host(std::uint32_t memory, std::optional<double> bandwidth, std::optional<double> adam = {}) {
    if (bandwidth) platform_.memories[memory].bandwidth = BytesPerSecond{*bandwidth};
    if (adam) platform_.memories[memory].adam = BytesPerSecond{*adam};
    return *this;
  }

  operator Platform() const { return platform_; }

 private:
  void add_memory(const std::string& name, std::optional<DeviceId> device) {
    platform_.vertices.push_back({id_at<MemoryId>(platform_.memories.size()), name});
    Memory memory;
    memory.name = name;
    memory.device = device;
    platform_.memories.push_back(std::move(memory));
  }

  Platform platform_;
};

/// Steps in the fewest words.
class Steps {
 public:
  /// A step without a route: a kernel on a compute stream, a delay on another.
  StepId timed(std::uint32_t device, Way way, double seconds, std::vector<StepId> waits = {}, std::uint32_t index = 0) {
    NewStep step;
    step.stream = builder.stream({device}, way, index);
    step.work.seconds = {seconds};
    step.waits = std::move(waits);
    return builder.add(step);
  }
  StepId memory_bound(std::uint32_t device, double seconds, std::uint32_t index = 0) {
    NewStep step;
    step.stream = builder.stream({device}, way::compute, index);
    step.work.seconds = {seconds};
    step.memory_bound = true;
    return builder.add(step);
  }
  StepId compute(std::uint32_t device, double seconds, std::vector<StepId> waits = {}) {
    return timed(device, way::compute, seconds, std::move(waits));
  }
  StepId compute(std::uint32_t device, double seconds, std::int64_t workspace, std::vector<BufferId> allocates,
                 std::vector<StepId> waits = {}) {
    NewStep step;
    step.stream = builder.stream({device}, way::compute);
    step.work.seconds = {seconds};
    step.workspace = {workspace};
    step.allocates = std::move(allocates);
    step.waits = std::move(waits);
    return builder.add(step);
  }
  StepId copy(std::uint32_t device, Way way, std::uint32_t from, std::uint32_t to, std::int64_t bytes,
              std::vector<StepId> waits = {}, double seconds = 0) {
    NewStep step;
    step.kind = StepKind::send;
    step.stream = builder.stream({device}, way);
    step.work = {{seconds}, {bytes}, builder.route({from}, {to})};
    step.waits = std::move(waits);
    return builder.add(step);
  }
  BufferId buffer(std::uint32_t memory, std::int64_t bytes) {
    Buffer buffer;
    buffer.memory = {memory};
    buffer.bytes = {bytes};
    return builder.buffer(buffer);
  }

  ScheduleBuilder builder;
};

}  // namespace plimsoll::test
