#include "sim/core/contention.h"

#include <algorithm>
#include <vector>

#include "sim/core/expects.h"

namespace plimsoll {

Schedule without_contention(Schedule schedule, const Platform& platform) {
  RouteFinder finder(platform);
  std::vector<Route> routes;
  for (const Endpoints& ends : schedule.routes) {
    const std::optional<Route> route = finder.between(ends.from, ends.to);
    EXPECTS(route);
    routes.push_back(*route);
  }
  for (Step& step : schedule.steps) {
    if (!step.work.is_transfer()) continue;
    const Route& route = routes[step.work.route.index];
    BytesPerSecond slowest = unlimited_bandwidth;
    for (const LinkUse& use : route.links) slowest = std::min(slowest, platform[use.link].bandwidth);
    step.work = {.seconds = route.latency + step.work.seconds + step.work.bytes / slowest, .bytes = {}};
  }
  return schedule;
}

}  // namespace plimsoll
