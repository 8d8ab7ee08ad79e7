#include "sim/lower/waiting_circle.h"

#include <string_view>
#include <vector>

namespace plimsoll {

std::string waiting_circle(const Problem& problem, const Partition& partition,
                           const std::function<std::optional<Blocked>(std::size_t)>& blocked) {
  std::string text = "the devices' orders wait for each other in a circle";
  const auto device = [&](PartId part) { return partition.parts[part.index].device; };
  std::vector<bool> seen(partition.order.size(), false);
  std::optional<Blocked> at;
  for (std::size_t d = 0; d < seen.size() && !at; ++d) at = blocked(d);
  while (at && !seen[device(at->turn.part).index]) {
    seen[device(at->turn.part).index] = true;
    at = blocked(device(at->by).index);
  }
  const std::string_view between[] = {": ", ", and "};
  for (int names = 0; at && names < 2; ++names, at = blocked(device(at->by).index)) {
    text += std::string(between[names]) + "part " + std::to_string(at->turn.part.index) + " on '" +
            problem.platform[device(at->turn.part)].name + "' waits for what part " + std::to_string(at->by.index) +
            " makes of micro-batch " + std::to_string(at->turn.micro_batch);
  }
  return text;
}

}  // namespace plimsoll
