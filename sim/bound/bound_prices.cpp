#include "sim/bound/bound_prices.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

Seconds bound_with(const Problem& problem, DeviceId device, BoundRules rules, BytesPerSecond out, Bytes budget) {
  rules.out = out;
  const IterationBound bound = IterationBounds(problem, device, rules).within(budget);
  EXPECTS(!bound.needs);
  return bound.time;
}

Platform with_faster_links(Platform platform, const Route& route) {
  for (const LinkUse use : route.links) {
    Link& link = platform.links[use.link.index];
    link.bandwidth.value += more_of_links.value;
    if (link.back) link.back->value += more_of_links.value;
  }
  return platform;
}

Platform with_faster_host(Platform platform, MemoryId host) {
  if (std::optional<BytesPerSecond>& rate = platform.memories[host.index].bandwidth) rate->value *= faster_host;
  return platform;
}

}  // namespace

BoundPrices bound_prices(const Problem& problem, DeviceId device, const BoundRules& rules, Bytes budget) {
  const Platform& platform = problem.platform;
  const MemoryId own = platform[device].memory;
  const Seconds now = bound_with(problem, device, rules, rules.out, budget);
  const auto saved = [&](BytesPerSecond out, Bytes within) {
    return std::max(Seconds{0}, now - bound_with(problem, device, rules, out, within));
  };
  BoundPrices prices{.memory = saved(rules.out, budget + more_memory), .links = {}, .host = {}};
  const std::optional<MemoryId> host = memory_at(platform, device, place::host);
  const std::optional<Route> route = host && *host != own ? route_between(platform, own, *host) : std::nullopt;
  if (rules.out == BytesPerSecond{} || !route) return prices;
  EXPECTS(rules.out == ways_out(platform, device));
  prices.links = saved(ways_out(with_faster_links(platform, *route), device), budget);
  const BytesPerSecond faster = ways_out(with_faster_host(platform, *host), device);
  if (faster > rules.out) prices.host = saved(faster, budget);
  return prices;
}

}  // namespace plimsoll
