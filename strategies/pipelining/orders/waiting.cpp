#include "strategies/pipelining/orders/waiting.h"

#include <algorithm>

namespace plimsoll {

std::vector<Waiting> waiting_in(const Partition& partition) {
  std::vector<Waiting> most(partition.parts.size());
  std::vector<std::uint32_t> in_flight(most.size()), weights(most.size());
  for (const std::vector<Turn>& order : partition.order) {
    for (const Turn& turn : order) {
      const std::size_t p = turn.part.index;
      const Part& part = partition.parts[p];
      switch (PieceName{static_cast<std::uint8_t>(turn.piece)}) {
        case PieceName::forward:
        case PieceName::arrive:
          most[p].in_flight = std::max(most[p].in_flight, ++in_flight[p]);
          break;
        case PieceName::leave:
          --in_flight[p];
          break;
        case PieceName::backward:
          --in_flight[p];
          if (part.cut_before_weights) most[p].weights = std::max(most[p].weights, ++weights[p]);
          break;
        case PieceName::weights:
          --weights[p];
          break;
      }
    }
  }
  return most;
}

}  // namespace plimsoll
