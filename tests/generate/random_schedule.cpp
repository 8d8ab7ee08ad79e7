#include "tests/generate/random_schedule.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/lower/schedule_builder.h"
#include "tests/generate/random.h"

namespace plimsoll {
namespace {

/// Numbers of either kind, on the grid or anywhere.
class Quantities {
 public:
  Quantities(Random& random, const RandomScheduleOptions& options)
      : random_(random), on_grid_(options.on_grid), all_scales_(options.all_scales) {}

  Seconds duration() {
    if (random_.chance(0.15)) return {};
    if (all_scales_) return {any_scale(1e-9, 1e7)};
    return {on_grid_ ? random_.between(1, 16) * 0.125 : 0.01 + random_.unit()};
  }
  Seconds latency() {
    if (random_.chance(0.5)) return {};
    if (all_scales_) return {any_scale(1e-9, 1e7)};
    return {on_grid_ ? random_.between(1, 4) * 0.0625 : 0.1 * random_.unit()};
  }
  Bytes flow() {
    if (random_.chance(0.1)) return {};
    if (all_scales_) return Bytes{static_cast<std::int64_t>(any_scale(1, 1e12))};
    return on_grid_ ? Bytes{std::int64_t{random_.between(1, 8)} << 17} : Bytes{random_.between(1, 1'000'000)};
  }
  BytesPerSecond bandwidth() {
    if (random_.chance(0.1)) return unlimited_bandwidth;
    if (all_scales_) return {any_scale(1e5, 1e13)};
    return {on_grid_ ? bandwidth_on_grid() : 1e5 + 1e6 * random_.unit()};
  }
  bool all_scales() const { return all_scales_; }
  BytesPerSecond updates() { return {(on_grid_ ? bandwidth_on_grid() : 1e5 + 1e6 * random_.unit()) / adam_moves}; }
  Bytes size() { return {random_.below(1000)}; }
  std::vector<double> slowdown() {
    std::vector<double> table{1};
    for (std::uint32_t k = random_.chance(0.5) ? 0 : random_.between(1, 3); k > 0; --k) {
      const bool grows = !on_grid_ || random_.chance(0.7);
      table.push_back(table.back() * (!grows ? 1 : on_grid_ ? 2 : 1 + random_.unit()));
    }
    return table;
  }

 private:
  double bandwidth_on_grid() { return static_cast<double>(1u << random_.between(18, 21)); }
  double any_scale(double least, double most) { return least * std::pow(most / least, random_.unit()); }

  Random& random_;
  bool on_grid_, all_scales_;
};

class PlatformMaker {
 public:
  PlatformMaker(Random& random, const RandomScheduleOptions& options) : random_(random), quantities_(random, options) {}

  Platform make(std::uint32_t devices) {
    platform_.name = "random";
    for (std::uint32_t d = 0; d < devices; ++d) add_device(d);
    const std::uint32_t hosts = random_.between(1, 3);
    for (std::uint32_t h = 0; h < hosts; ++h) {
      add_memory("host" + std::to_string(h), {});
      if (random_.chance(0.5)) platform_.memories.back().bandwidth = quantities_.bandwidth();
      if (quantities_.all_scales() || random_.chance(0.5)) platform_.memories.back().adam = quantities_.updates();
    }
    const std::uint32_t first_switch = vertices(), switches = random_.between(1, 4);
    for (std::uint32_t s = 0; s < switches; ++s) {
      platform_.vertices.push_back({{}, "switch" + std::to_string(s)});
      if (s > 0) link(first_switch + s, first_switch + random_.below(s));
    }
    for (std::uint32_t m = 0; m < devices + hosts; ++m) link(m, first_switch + random_.below(switches));
    for (std::uint32_t extra = random_.below(devices + 1); extra > 0; --extra) {
      const std::uint32_t from = random_.below(vertices()), to = random_.below(vertices());
      if (from != to) link(from, to);
    }
    return std::move(platform_);
  }

 private:
  std::uint32_t vertices() const { return static_cast<std::uint32_t>(platform_.vertices.size()); }

  void add_device(std::uint32_t index) {
    Device device;
    device.name = "gpu" + std::to_string(index);
    device.memory = {index};
    device.overlap_slowdown = quantities_.slowdown();
    if (random_.chance(0.5)) device.memory_overlap_slowdown = quantities_.slowdown();
    device.compute_streams = random_.between(1, 3);
    add_memory(device.name, DeviceId{index});
    platform_.devices.push_back(std::move(device));
  }

  void add_memory(const std::string& name, std::optional<DeviceId> device) {
    platform_.vertices.push_back({id_at<MemoryId>(platform_.memories.size()), name});
    Memory memory;
    memory.name = name;
    memory.device = device;
    platform_.memories.push_back(std::move(memory));
  }

  void link(std::uint32_t from, std::uint32_t to) {
    const BytesPerSecond bandwidth = quantities_.bandwidth();
    const Seconds latency = quantities_.latency();
    const bool full_duplex = random_.chance(0.6);
    platform_.links.push_back(
        {"link" + std::to_string(platform_.links.size()), from, to, bandwidth, latency, full_duplex});
    if (full_duplex && random_.chance(0.3)) platform_.links.back().back = quantities_.bandwidth();
  }

  Random& random_;
  Quantities quantities_;
  Platform platform_;
};

class ScheduleMaker {
 public:
  ScheduleMaker(Random& random, const RandomScheduleOptions& options, const Platform& platform)
      : random_(random), quantities_(random, options), platform_(platform) {}

  Schedule make(std::uint32_t steps) {
    add_streams();
    choose_routes();
    for (std::uint32_t r = random_.below(4); r > 0; --r) {
      live_.push_back({new_buffer(any_memory()), {}});
      builder_.resident(live_.back().buffer);
    }
    for (std::uint32_t s = 0; s < steps; ++s) add_step();
    return builder_.finish();
  }

 private:
  struct Live {
    BufferId buffer;
    std::optional<StepId> allocated_by;  ///< unset: resident
  };

  struct AnyStream {
    StreamId id;
    DeviceId device;
    bool computes = false;
    std::optional<BytesPerSecond> updates;  ///< their traffic: an update moves whole bytes
  };

  MemoryId any_memory() { return {random_.below(static_cast<std::uint32_t>(platform_.memories.size()))}; }

  BufferId new_buffer(MemoryId memory) {
    Buffer buffer;
    buffer.memory = memory;
    buffer.bytes = quantities_.size();
    return builder_.buffer(buffer);
  }

  void add_streams() {
    constexpr Way to_any{place::device, MemoryId{0}};  // engines do not hold copies against it
    for (std::uint32_t d = 0; d < platform_.devices.size(); ++d) {
      const std::uint32_t compute_streams = random_.between(1, platform_.devices[d].compute_streams);
      for (std::uint32_t c = 0; c < compute_streams; ++c) add_stream({d}, way::compute, c);
      for (const Way way : {way::device_to_host, way::host_to_device, to_any}) {
        if (random_.chance(0.7)) add_stream({d}, way, 0);
      }
      if (random_.chance(0.5)) add_stream({d}, way::on_host, 0);
    }
  }

  void add_stream(DeviceId device, Way way, std::uint32_t index) {
    streams_.push_back({builder_.stream(device, way, index), device, way.computes(), {}});
    const std::optional<MemoryId> host = memory_at(platform_, device, place::host);
    if (way == way::on_host && host) streams_.back().updates = update_traffic(platform_[*host]);
  }

  /// Memories pass nothing on, so that not every pair has a route.
  void choose_routes() {
    for (int attempt = 0; attempt < 40; ++attempt) {
      const MemoryId from = any_memory(), to = any_memory();
      if (from != to && route_between(platform_, from, to)) routes_.push_back({from, to});
    }
  }

  void add_step() {
    const AnyStream stream = streams_[random_.below(static_cast<std::uint32_t>(streams_.size()))];
    NewStep step;
    step.stream = stream.id;
    MemoryId memory = platform_[stream.device].memory;
    if (!stream.computes && !routes_.empty() && random_.chance(0.95)) {
      const Endpoints ends = routes_[random_.below(static_cast<std::uint32_t>(routes_.size()))];
      step.kind = StepKind::send;
      step.work.route = builder_.route(ends.from, ends.to);
      step.work.bytes = quantities_.flow();
      if (random_.chance(0.2)) step.work.seconds = quantities_.duration();
      memory = ends.to;
    } else {
      step.work.seconds = quantities_.duration();
      step.memory_bound = random_.chance(0.4);
      if (stream.updates && quantities_.all_scales()) step.work.seconds = quantities_.flow() / *stream.updates;
    }
    if (random_.chance(0.3)) step.workspace = quantities_.size();
    add_waits(step);
    std::optional<BufferId> dies;
    if (random_.chance(0.5) && !live_.empty()) dies = take_live(step);
    for (std::uint32_t b = random_.below(3); b > 0; --b) step.allocates.push_back(new_buffer(memory));
    const StepId id = builder_.add(step);
    for (const BufferId buffer : step.allocates) live_.push_back({buffer, id});
    if (dies) builder_.free_after(id, *dies);
  }

  void add_waits(NewStep& step) {
    const auto issued = static_cast<std::uint32_t>(builder_.steps());
    if (issued == 0) return;
    for (std::uint32_t w = random_.below(4); w > 0; --w) {
      const std::uint32_t back = random_.between(1, std::min(issued, 30u));
      step.waits.push_back({issued - back});
    }
  }

  /// A live buffer that the step is to free.
  BufferId take_live(NewStep& step) {
    std::swap(live_[random_.below(static_cast<std::uint32_t>(live_.size()))], live_.back());
    const Live taken = live_.back();
    live_.pop_back();
    if (taken.allocated_by) step.waits.push_back(*taken.allocated_by);
    return taken.buffer;
  }

  Random& random_;
  Quantities quantities_;
  const Platform& platform_;
  ScheduleBuilder builder_;
  std::vector<AnyStream> streams_;
  std::vector<Endpoints> routes_;
  std::vector<Live> live_;
};

}  // namespace

RandomSchedule random_schedule(const RandomScheduleOptions& options) {
  Random random(options.seed);
  const std::uint32_t devices = random.between(1, options.most_devices);
  const std::uint32_t steps = random.between(1, options.most_steps);
  RandomSchedule made;
  made.platform = PlatformMaker(random, options).make(devices);
  made.schedule = ScheduleMaker(random, options, made.platform).make(steps);
  return made;
}

}  // namespace plimsoll
