#include "sim/engine/program.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "sim/core/expects.h"
#include "sim/engine/engine_error.h"

namespace plimsoll {
namespace {

std::uint32_t size_of(const auto& list) {
  EXPECTS(list.size() < none);
  return static_cast<std::uint32_t>(list.size());
}

bool is_duration(double seconds) {
  return seconds >= 0 && std::isfinite(seconds);
}

/// Adds to the entry of the memory, among those from `first` on.
void add_change(std::vector<MemoryChange>& changes, std::size_t first, MemoryId memory, Bytes bytes) {
  if (bytes == Bytes{0}) return;
  for (std::size_t c = first; c < changes.size(); ++c) {
    if (changes[c].memory != memory.index) continue;
    changes[c].bytes += bytes.count;
    return;
  }
  changes.push_back({memory.index, bytes.count});
}

/// One direction of a link.
struct FlatLink {
  double bandwidth = 0;
  std::uint32_t user = none;   ///< the first stream whose transfers cross it
  bool is_shared = false;      ///< with another stream
  std::uint32_t index = none;  ///< in the program

  bool is_limited() const { return std::isfinite(bandwidth); }
  void add_user(std::uint32_t stream) {
    if (user == none) user = stream;
    is_shared |= user != stream;
  }
};

struct FoundRoute {
  Endpoints endpoints;
  double latency = 0;
  std::vector<std::uint32_t> links;  ///< FlatLinks
};

class Flattener {
 public:
  Flattener(const Schedule& schedule, const Platform& platform)
      : schedule_(schedule), platform_(platform), finder_(platform) {}

  Program flatten() && {
    add_devices();
    add_streams();
    add_links();
    add_routes();
    add_resident();
    add_steps();
    add_successors();
    return std::move(program_);
  }

 private:
  void add_devices() {
    for (const Device& device : platform_.devices) {
      EXPECTS(!device.overlap_slowdown.empty());
      program_.devices.push_back({.first_speed = size_of(program_.speeds)});
      for (const double slowdown : device.overlap_slowdown) {
        EXPECTS(slowdown > 0 && std::isfinite(slowdown));
        program_.speeds.push_back(1 / slowdown);
      }
    }
    program_.devices.push_back({.first_speed = size_of(program_.speeds)});
  }

  void add_streams() {
    for (const Stream& stream : schedule_.streams) {
      EXPECTS(stream.device.index < platform_.devices.size());
      program_.streams.push_back({.device = stream.device.index});
      ProgramDevice& device = program_.devices[stream.device.index];
      ++device.streams;
      if (stream.kind == StreamKind::compute) ++device.kernel_streams;
    }
    for (std::size_t d = 0; d < platform_.devices.size(); ++d) {
      const Device& device = platform_.devices[d];
      const std::uint32_t used = program_.devices[d].kernel_streams;
      if (used <= device.compute_streams) continue;
      throw EngineError("device '" + device.name + "' runs " + std::to_string(device.compute_streams) +
                        " compute stream(s) at once; the schedule has " + std::to_string(used) + " there");
    }
  }

  /// Each direction of a full-duplex link is a link of its own.
  void add_links() {
    for (const Link& link : platform_.links) {
      EXPECTS(link.bandwidth.value > 0 && is_duration(link.latency.value));
      up_.push_back(size_of(links_));
      links_.push_back({link.bandwidth.value});
      if (link.full_duplex) links_.push_back({link.bandwidth.value});
      down_.push_back(size_of(links_) - 1);
    }
  }

  void add_routes() {
    for (const Endpoints& endpoints : schedule_.routes) routes_.push_back(found_route(endpoints));
    for (const Step& step : schedule_.steps) {
      if (!step.work.is_transfer()) continue;
      EXPECTS(step.work.route.index < routes_.size());
      for (const std::uint32_t link : routes_[step.work.route.index].links) links_[link].add_user(step.stream.index);
    }
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
    FoundRoute found{.endpoints = endpoints, .latency = route->latency.value};
    for (const LinkUse use : route->links) found.links.push_back((use.down ? down_ : up_)[use.link.index]);
    return found;
  }

  /// Leaves out the links that cannot bound a flow more than another link of the route does: those that only one stream
  /// uses, so one flow at a time, but for the narrowest of them where it is narrower than all that are shared.
  void add_route(const FoundRoute& route) {
    program_.routes.push_back({.bandwidth = unlimited_bandwidth.value,
                               .first_link = size_of(program_.route_links),
                               .first_device = size_of(program_.route_devices)});
    double& bandwidth = program_.routes.back().bandwidth;
    std::uint32_t narrowest = none;
    for (const std::uint32_t link : route.links) {
      if (links_[link].bandwidth >= bandwidth) continue;
      bandwidth = links_[link].bandwidth;
      narrowest = link;
    }
    double narrowest_shared = unlimited_bandwidth.value;
    for (const std::uint32_t link : route.links) {
      if (!links_[link].is_limited() || !links_[link].is_shared) continue;
      narrowest_shared = std::min(narrowest_shared, links_[link].bandwidth);
      use_link(links_[link]);
    }
    if (std::isfinite(narrowest_shared) && bandwidth < narrowest_shared) use_link(links_[narrowest]);
    for (const MemoryId end : {route.endpoints.from, route.endpoints.to}) {
      const std::optional<DeviceId> device = platform_[end].device;
      if (device && is_slowed_down(*device)) program_.route_devices.push_back(device->index);
    }
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
    const std::vector<double>& slowdown = platform_[device].overlap_slowdown;
    return std::ranges::any_of(slowdown, [&](double s) { return s != slowdown.front(); });
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
    std::vector<std::uint32_t> last_on_stream(schedule_.streams.size(), none);
    program_.steps.reserve(schedule_.steps.size() + 1);
    program_.predecessors.reserve(schedule_.steps.size());
    program_.allocations.reserve(schedule_.buffer_list.size());
    program_.frees.reserve(schedule_.buffer_list.size());
    for (const Step& step : schedule_.steps) {
      EXPECTS(step.stream.index < schedule_.streams.size());
      const std::uint32_t id = size_of(program_.steps);
      program_.steps.push_back(timing_of(step));
      std::uint32_t& previous = last_on_stream[step.stream.index];
      program_.predecessors.push_back(step.waits.count + (previous == none ? 0 : 1));
      (previous == none ? program_.streams[step.stream.index].first_step : program_.steps[previous].next) = id;
      previous = id;
      add_memory_changes(step);
    }
    program_.steps.push_back(
        {.first_allocation = size_of(program_.allocations), .first_free = size_of(program_.frees)});
  }

  ProgramStep timing_of(const Step& step) const {
    EXPECTS(is_duration(step.work.seconds.value) && step.work.bytes >= Bytes{0} && step.workspace >= Bytes{0});
    ProgramStep flat{.seconds = step.work.seconds.value,
                     .stream = step.stream.index,
                     .first_allocation = size_of(program_.allocations),
                     .first_free = size_of(program_.frees)};
    if (step.work.is_transfer()) {
      const std::uint32_t route = step.work.route.index;
      flat.kind = StepClass::transfer;
      flat.route = route;
      flat.seconds += routes_[route].latency;
      if (program_.links_of(route).empty()) {
        flat.seconds += static_cast<double>(step.work.bytes.count) / program_.routes[route].bandwidth;
      } else {
        flat.bytes = step.work.bytes.count;
      }
    } else if (schedule_[step.stream].kind != StreamKind::compute) {
      flat.kind = StepClass::delay;
    }
    return flat;
  }

  void add_memory_changes(const Step& step) {
    const MemoryId own = platform_[schedule_[step.stream].device].memory;
    const bool has_workspace = step.workspace > Bytes{0};
    if (has_workspace || step.allocates.count > 0) {
      add_changes(program_.allocations, step.allocates, own, step.workspace);
    }
    if (has_workspace || step.frees.count > 0) add_changes(program_.frees, step.frees, own, step.workspace);
  }

  void add_changes(std::vector<MemoryChange>& changes, Slice buffers, MemoryId own, Bytes workspace) const {
    const std::size_t first = changes.size();
    add_change(changes, first, own, workspace);
    EXPECTS(std::size_t{buffers.first} + buffers.count <= schedule_.buffer_list.size());
    for (const BufferId id : schedule_.buffers_in(buffers)) {
      EXPECTS(id.index < schedule_.buffers.size());
      const Buffer& buffer = schedule_[id];
      EXPECTS(buffer.memory.index < platform_.memories.size() && buffer.bytes >= Bytes{0});
      add_change(changes, first, buffer.memory, buffer.bytes);
    }
  }

  /// Turns the list of waits around: counts, running sums, then each wait to its place.
  void add_successors() {
    std::vector<ProgramStep>& steps = program_.steps;
    std::uint32_t total = 0;
    for (std::size_t s = 0; s < schedule_.steps.size(); ++s) {
      const Step& step = schedule_.steps[s];
      EXPECTS(std::size_t{step.waits.first} + step.waits.count <= schedule_.wait_list.size());
      for (const StepId wait : schedule_.waits_of(step)) {
        EXPECTS(wait.index < s);
        ++steps[wait.index].first_successor;
      }
      total += step.waits.count;
    }
    std::uint32_t end = 0;
    for (ProgramStep& step : steps) {
      end += step.first_successor;
      step.first_successor = end;
    }
    program_.successors.resize(total);
    for (std::size_t s = schedule_.steps.size(); s-- > 0;) {
      for (const StepId wait : schedule_.waits_of(schedule_.steps[s])) {
        program_.successors[--steps[wait.index].first_successor] = static_cast<std::uint32_t>(s);
      }
    }
  }

  const Schedule& schedule_;
  const Platform& platform_;
  RouteFinder finder_;
  Program program_;
  std::vector<FlatLink> links_;
  std::vector<std::uint32_t> up_, down_;  ///< per link of the platform: its index in links_ in that direction
  std::vector<FoundRoute> routes_;        ///< as in the schedule
};

}  // namespace

Program flatten(const Schedule& schedule, const Platform& platform) {
  return Flattener(schedule, platform).flatten();
}

}  // namespace plimsoll
