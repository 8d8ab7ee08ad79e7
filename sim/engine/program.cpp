#include "sim/engine/program.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "sim/core/expects.h"
#include "sim/engine/engine_error.h"
#include "sim/judge/workspace_memories.h"

namespace plimsoll {
namespace {

std::uint32_t size_of(const auto& list) {
  EXPECTS(list.size() < none);
  return static_cast<std::uint32_t>(list.size());
}

bool is_duration(double seconds) {
  return seconds >= 0 && std::isfinite(seconds);
}

/// The traffic of updates on a host whose platform says nothing about it: any number does that leaves small times
/// exact.
constexpr BytesPerSecond unknown_update_traffic{1e12};

/// One direction of a link, a host's memory or its processor.
struct FlatLink {
  double bandwidth = 0;
  std::uint32_t user = none;   ///< the first stream whose transfers cross it
  bool is_shared = false;      ///< with another stream, so that it may bind
  std::uint32_t index = none;  ///< in the program

  bool is_limited() const { return std::isfinite(bandwidth); }
  void add_user(std::uint32_t stream) {
    if (user == none) user = stream;
    is_shared |= user != stream;
  }
};

struct FoundRoute {
  double latency = 0;
  double bandwidth = 0;                ///< of a lone flow
  bool is_used = false;                ///< by a step
  std::vector<std::uint32_t> links;    ///< FlatLinks
  std::vector<std::uint32_t> devices;  ///< at its ends, those that transfers slow down
};

/// Whether the first of two links is the narrower, or as narrow and before the other.
bool is_narrower(const std::vector<FlatLink>& links, std::uint32_t a, std::uint32_t b) {
  return std::pair(links[a].bandwidth, a) < std::pair(links[b].bandwidth, b);
}

class Flattener {
 public:
  Flattener(const Schedule& schedule, const Platform& platform)
      : schedule_(schedule), platform_(platform), finder_(platform) {}

  /// The schedule's steps are large: they are read once, what depends on all of them is done on the program's.
  Program flatten() {
    add_devices();
    add_streams();
    add_links();
    add_memories();
    for (const Endpoints& endpoints : schedule_.routes) routes_.push_back(found_route(endpoints));
    add_resident();
    add_steps();
    leave_out_what_cannot_bind();
    add_routes();
    time_transfers();
    add_successors();
    return std::move(program_);
  }

  /// After `flatten`.
  std::vector<MemoryId> memories_that_may_bind() const {
    std::vector<MemoryId> memories;
    for (std::size_t m = 0; m < memory_.size(); ++m) {
      const std::uint32_t link = memory_[m];
      if (link == none) continue;
      const auto is_held_back = [&](const FoundRoute& route) {
        const bool crosses = std::ranges::find(route.links, link) != route.links.end();
        return crosses && route.is_used && route.bandwidth >= links_[link].bandwidth;
      };
      if (links_[link].index != none || std::ranges::any_of(routes_, is_held_back)) {
        memories.push_back(id_at<MemoryId>(m));
      }
    }
    return memories;
  }

 private:
  void add_devices() {
    for (const Device& device : platform_.devices) {
      EXPECTS(!device.overlap_slowdown.empty());
      add_speeds(device.overlap_slowdown);
    }
    for (const Device& device : platform_.devices) {
      memory_bound_.push_back(device.memory_overlap_slowdown.empty() ? none : size_of(program_.devices));
      if (memory_bound_.back() != none) add_speeds(device.memory_overlap_slowdown);
    }
    program_.devices.push_back({.first_speed = size_of(program_.speeds)});
  }

  /// One more device, whose kernels are slowed down so.
  void add_speeds(const std::vector<double>& slowdowns) {
    program_.devices.push_back({.first_speed = size_of(program_.speeds)});
    for (const double slowdown : slowdowns) {
      EXPECTS(slowdown > 0 && std::isfinite(slowdown));
      program_.speeds.push_back(1 / slowdown);
    }
  }

  void add_streams() {
    for (const Stream& stream : schedule_.streams) {
      EXPECTS(stream.device.index < platform_.devices.size());
      program_.streams.push_back({.device = stream.device.index, .memory_bound = memory_bound_[stream.device.index]});
      ProgramDevice& device = program_.devices[stream.device.index];
      ++device.streams;
      if (stream.way == way::compute) ++device.kernel_streams;
    }
    for (std::size_t d = 0; d < platform_.devices.size(); ++d) {
      const Device& device = platform_.devices[d];
      const std::uint32_t used = program_.devices[d].kernel_streams;
      if (memory_bound_[d] != none) program_.devices[memory_bound_[d]].kernel_streams = used;
      if (used <= device.compute_streams) continue;
      throw EngineError("device '" + device.name + "' runs " + std::to_string(device.compute_streams) +
                        " compute stream(s) at once; the schedule has " + std::to_string(used) + " there");
    }
  }

  /// Each direction of a full-duplex link is a link of its own.
  void add_links() {
    for (const Link& link : platform_.links) {
      EXPECTS(link.bandwidth.value > 0 && is_duration(link.latency.value));
      EXPECTS(!link.back || (link.back->value > 0 && link.full_duplex));
      up_.push_back(size_of(links_));
      links_.push_back({link.bandwidth.value});
      if (link.full_duplex) links_.push_back({bandwidth_of(link, true).value});
      down_.push_back(size_of(links_) - 1);
    }
  }

  /// A memory without a device is one more link of every route that ends there.
  void add_memories() {
    memory_.assign(platform_.memories.size(), none);
    for (std::size_t m = 0; m < memory_.size(); ++m) {
      const BytesPerSecond bandwidth = copy_bandwidth(platform_.memories[m]);
      EXPECTS(bandwidth.value > 0);
      if (bandwidth == unlimited_bandwidth) continue;
      memory_[m] = size_of(links_);
      links_.push_back({bandwidth.value});
    }
  }

  /// The way of what is computed at a host: its processor and its memory. None without a host.
  std::uint32_t host_route(const Stream& stream) {
    const std::optional<MemoryId> host = finder_.memory_at(stream.device, stream.way.from);
    if (!host) return none;
    const auto [place, is_new] = host_routes_.try_emplace(host->index, size_of(routes_));
    if (!is_new) return place->second;
    const double traffic = update_traffic(platform_[*host]).value_or(unknown_update_traffic).value;
    FoundRoute route{.bandwidth = traffic, .links = {size_of(links_)}};
    links_.push_back({traffic});
    const bool loads_memory = platform_[*host].adam && memory_[host->index] != none;
    if (loads_memory) route.links.push_back(memory_[host->index]);
    routes_.push_back(std::move(route));
    return place->second;
  }

  /// A link cannot bind where the flows over it, all at once, are held below it by narrower links: each route by the
  /// narrowest of its others. (Of links as narrow as it, only by those before it, so that no two rely on each other.)
  void leave_out_what_cannot_bind() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> held_by;
    for (const FoundRoute& route : routes_) {
      if (!route.is_used) continue;
      for (const std::uint32_t link : route.links) {
        if (!links_[link].is_shared || !links_[link].is_limited()) continue;
        std::uint32_t narrowest = link;
        for (const std::uint32_t other : route.links) {
          if (is_narrower(links_, other, narrowest)) narrowest = other;
        }
        held_by.emplace_back(link, narrowest);
      }
    }
    std::ranges::sort(held_by);
    held_by.erase(std::unique(held_by.begin(), held_by.end()), held_by.end());
    for (std::size_t first = 0, end = 0; first < held_by.size(); first = end) {
      FlatLink& link = links_[held_by[first].first];
      double most = 0;
      bool is_held = true;
      for (; end < held_by.size() && held_by[end].first == held_by[first].first; ++end) {
        is_held &= held_by[end].second != held_by[end].first;
        most += links_[held_by[end].second].bandwidth;
      }
      if (is_held && most <= link.bandwidth) link.is_shared = false;
    }
  }

  void add_routes() {
    for (const FoundRoute& route : routes_) add_route(route);
    program_.routes.push_back(
        {.first_link = size_of(program_.route_links), .first_device = size_of(program_.route_devices)});
  }

  FoundRoute found_route(const Endpoints& endpoints) {
    const std::optional<Route> route = finder_.between(endpoints.from, endpoints.to);
    if (!route) {
      throw EngineError("platform '" + platform_.name + "' has no route from memory '" +
                        platform_[endpoints.from].name + "' to '" + platform_[endpoints.to].name + "'");
    }
    FoundRoute found{.latency = route->latency.value, .bandwidth = route->bandwidth.value};
    for (const LinkUse use : route->links) found.links.push_back((use.down ? down_ : up_)[use.link.index]);
    for (const MemoryId end : {endpoints.from, endpoints.to}) {
      if (memory_[end.index] != none) found.links.push_back(memory_[end.index]);
      const std::optional<DeviceId> device = platform_[end].device;
      if (!device || !is_slowed_down(*device)) continue;
      found.devices.push_back(device->index);
      const std::uint32_t other = memory_bound_[device->index];
      if (other != none) found.devices.push_back(other);
    }
    return found;
  }

  /// Leaves out the links that cannot bound a flow more than another link of the route does: those that only one stream
  /// uses, so one flow at a time, but for the narrowest of them where it is narrower than all that are shared.
  void add_route(const FoundRoute& route) {
    program_.routes.push_back({.bandwidth = route.bandwidth,
                               .first_link = size_of(program_.route_links),
                               .first_device = size_of(program_.route_devices)});
    std::uint32_t narrowest = none;
    double narrowest_shared = unlimited_bandwidth.value;
    for (const std::uint32_t link : route.links) {
      if (narrowest == none || is_narrower(links_, link, narrowest)) narrowest = link;
      if (!links_[link].is_limited() || !links_[link].is_shared) continue;
      narrowest_shared = std::min(narrowest_shared, links_[link].bandwidth);
      use_link(links_[link]);
    }
    const bool is_narrower_alone = narrowest != none && links_[narrowest].bandwidth < narrowest_shared;
    if (std::isfinite(narrowest_shared) && is_narrower_alone) use_link(links_[narrowest]);
    program_.route_devices.insert(program_.route_devices.end(), route.devices.begin(), route.devices.end());
  }

  /// Appends it to the links of the route that is being added.
  void use_link(FlatLink& link) {
    if (link.index == none) {
      link.index = size_of(program_.links);
      program_.links.push_back(link.bandwidth);
    }
    program_.route_links.push_back(link.index);
  }

  bool is_slowed_down(DeviceId device) const {
    const auto changes = [](const std::vector<double>& slowdown) {
      return std::ranges::any_of(slowdown, [&](double s) { return s != slowdown.front(); });
    };
    return changes(platform_[device].overlap_slowdown) || changes(platform_[device].memory_overlap_slowdown);
  }

  void add_resident() {
    program_.resident.assign(platform_.memories.size(), 0);
    for (const BufferId id : schedule_.resident) {
      EXPECTS(id.index < schedule_.buffers.size());
      const Buffer& buffer = schedule_[id];
      EXPECTS(buffer.memory.index < platform_.memories.size());
      program_.resident[buffer.memory.index] += buffer.bytes.count;
    }
  }

  void add_steps() {
    workspace_memories_ = workspace_memories(schedule_, platform_);
    std::vector<LastStep> last(schedule_.streams.size());
    EXPECTS(schedule_.steps.size() < none);
    program_.steps.reserve(schedule_.steps.size() + 1);
    program_.predecessors.resize(schedule_.steps.size());
    program_.allocations.reserve(schedule_.buffer_list.size());
    program_.frees.reserve(schedule_.buffer_list.size());
    waits_.reserve(schedule_.wait_list.size());
    for (std::uint32_t id = 0; id < schedule_.steps.size(); ++id) {
      const Step& step = schedule_.steps[id];
      EXPECTS(step.stream.index < schedule_.streams.size());
      LastStep& previous = last[step.stream.index];
      add_step(step, program_.steps.emplace_back(), previous);
      program_.predecessors[id] = step.waits.count + (previous.id == none ? 0 : 1);
      (previous.id == none ? program_.streams[step.stream.index].first_step : program_.steps[previous.id].next) = id;
      previous.id = id;
      add_waits(id, step);
    }
    program_.steps.emplace_back();
    program_.steps.back().first_allocation = size_of(program_.allocations);
    program_.steps.back().first_free = size_of(program_.frees);
  }

  /// Of a stream.
  struct LastStep {
    std::uint32_t id = none, route = none;
  };

  /// Without what a transfer's route adds: which links bound it is known when all users of the links are.
  void add_step(const Step& step, ProgramStep& flat, LastStep& previous) {
    EXPECTS(is_duration(step.work.seconds.value) && step.work.bytes >= Bytes{0});
    flat.seconds = step.work.seconds.value;
    flat.stream = step.stream.index;
    if (step.work.is_transfer()) {
      EXPECTS(step.work.route.index < schedule_.routes.size());
      flat.route = step.work.route.index;
      flat.bytes = static_cast<double>(step.work.bytes.count);
    } else if (schedule_[step.stream].way.computes_elsewhere()) {
      const bool is_known = previous.route != none && previous.route >= schedule_.routes.size();
      flat.route = is_known ? previous.route : host_route(schedule_[step.stream]);
    }
    if (flat.route != none) {
      flat.kind = StepClass::transfer;
      if (std::exchange(previous.route, flat.route) != flat.route) {
        routes_[flat.route].is_used = true;
        for (const std::uint32_t link : routes_[flat.route].links) links_[link].add_user(flat.stream);
      }
    } else if (schedule_[step.stream].way != way::compute) {
      flat.kind = StepClass::delay;
    }
    flat.device = schedule_[step.stream].device.index;
    if (step.memory_bound && memory_bound_[flat.device] != none) flat.device = memory_bound_[flat.device];
    // A list too long for these is found at the end.
    flat.first_allocation = static_cast<std::uint32_t>(program_.allocations.size());
    flat.first_free = static_cast<std::uint32_t>(program_.frees.size());
    add_changes(program_.allocations, step.allocates, step);
    add_changes(program_.frees, step.frees, step);
  }

  void time_transfers() {
    for (ProgramStep& step : program_.steps) {
      if (step.kind != StepClass::transfer) continue;
      const bool is_shared = !program_.links_of(step.route).empty();
      const double bandwidth = program_.routes[step.route].bandwidth;
      if (step.route >= schedule_.routes.size()) {
        if (is_shared) step.bytes = std::exchange(step.seconds, 0) * bandwidth;
        continue;
      }
      step.seconds += routes_[step.route].latency;
      if (!is_shared) step.seconds += std::exchange(step.bytes, 0) / bandwidth;
    }
  }

  /// One entry a memory: the buffers', and the workspace where the stream computes. That of plain training may be below
  /// 0.
  void add_changes(std::vector<MemoryChange>& changes, Slice buffers, const Step& step) const {
    const std::size_t first = changes.size();
    if (step.workspace != Bytes{0})
      changes.push_back({workspace_memories_[step.stream.index].index, step.workspace.count});
    if (buffers.count == 0) return;
    EXPECTS(std::size_t{buffers.first} + buffers.count <= schedule_.buffer_list.size());
    for (const BufferId id : schedule_.buffers_in(buffers)) {
      EXPECTS(id.index < schedule_.buffers.size());
      const Buffer& buffer = schedule_[id];
      EXPECTS(buffer.memory.index < platform_.memories.size() && buffer.bytes >= Bytes{0});
      if (buffer.bytes == Bytes{0}) continue;
      std::size_t entry = first;
      while (entry < changes.size() && changes[entry].memory != buffer.memory.index) ++entry;
      if (entry == changes.size()) changes.push_back({buffer.memory.index, 0});
      changes[entry].bytes += buffer.bytes.count;
    }
  }

  void add_waits(std::uint32_t id, const Step& step) {
    if (step.waits.count == 0) return;
    EXPECTS(std::size_t{step.waits.first} + step.waits.count <= schedule_.wait_list.size());
    for (const StepId wait : schedule_.waits_of(step)) {
      EXPECTS(wait.index < id);
      ++program_.steps[wait.index].first_successor;
      waits_.push_back({wait.index, id});
    }
  }

  /// Turns the list of waits around: running sums of the counts, then each wait to its place.
  void add_successors() {
    std::uint32_t end = 0;
    for (ProgramStep& step : program_.steps) {
      end += step.first_successor;
      step.first_successor = end;
    }
    program_.successors.resize(end);
    for (std::size_t w = waits_.size(); w-- > 0;) {
      program_.successors[--program_.steps[waits_[w].for_step].first_successor] = waits_[w].waiting;
    }
  }

  struct Wait {
    std::uint32_t for_step, waiting;
  };

  const Schedule& schedule_;
  const Platform& platform_;
  RouteFinder finder_;
  Program program_;
  std::vector<std::uint32_t> memory_bound_;  ///< per device: that of its kernels that its memory bounds
  std::vector<FlatLink> links_;
  std::vector<std::uint32_t> up_, down_;  ///< per link of the platform: its index in links_ in that direction
  std::vector<std::uint32_t> memory_;     ///< per memory: the same, where copies share it
  std::vector<FoundRoute> routes_;        ///< as in the schedule, then those of updates
  std::map<std::uint32_t, std::uint32_t> host_routes_;  ///< by memory
  std::vector<MemoryId> workspace_memories_;            ///< per stream
  std::vector<Wait> waits_;                             ///< by the step that waits
};

}  // namespace

Program flatten(const Schedule& schedule, const Platform& platform) {
  return Flattener(schedule, platform).flatten();
}

bool is_anything_shared(const Program& program) {
  const auto is_slowed_down = [&](std::uint32_t device) {
    const std::span<const double> speeds = program.speeds_of(device);
    return std::ranges::any_of(speeds, [&](double speed) { return speed != speeds.front(); });
  };
  return std::ranges::any_of(program.steps, [&](const ProgramStep& step) {
    if (step.kind == StepClass::transfer) return step.bytes > 0;
    return step.kind == StepClass::kernel && !step.is_instant() && is_slowed_down(step.device);
  });
}

std::vector<MemoryId> memories_that_may_bind(const Schedule& schedule, const Platform& platform) {
  Flattener flattener(schedule, platform);
  flattener.flatten();
  return flattener.memories_that_may_bind();
}

}  // namespace plimsoll
