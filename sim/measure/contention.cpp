#include "sim/measure/contention.h"

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
    step.work = {.seconds = route.latency + step.work.seconds + step.work.bytes / route.bandwidth, .bytes = {}};
  }
  for (Stream& stream : schedule.streams) {
    // Steps without a route on a stream of copies take their seconds alone.
    if (stream.way.computes_elsewhere()) stream.way.to = place::device;
  }
  return schedule;
}

}  // namespace plimsoll
