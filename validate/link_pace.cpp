#include "validate/link_pace.h"

#include "sim/core/expects.h"

namespace plimsoll {

LinkPace pace_of(const Platform& platform, const Endpoints& ends) {
  const std::optional<Route> route = route_between(platform, ends.from, ends.to);
  EXPECTS(route);
  return {route->latency, route->bandwidth};
}

}  // namespace plimsoll
