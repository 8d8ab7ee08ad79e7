#include "strategies/pipelining/cuts/part_costs.h"

#include <algorithm>
#include <cmath>

namespace plimsoll {

PartCosts in_ticks(PartCosts costs) {
  const auto kinds = {&costs.f, &costs.b, &costs.w, &costs.sent, &costs.returned};
  double longest = 0;
  for (const std::vector<double>* times : kinds) {
    for (const double time : *times) longest = std::max(longest, time);
  }
  if (longest <= 0) return costs;
  const double ticks = std::pow(10, 9 - std::floor(std::log10(longest)));
  for (std::vector<double>* times : kinds) {
    for (double& time : *times) time = std::round(time * ticks);
  }
  return costs;
}

}  // namespace plimsoll
