#include "sim/core/partition.h"

#include "sim/core/expects.h"

namespace plimsoll {

Partition one_device(const Graph& graph, std::uint32_t micro_batches, std::size_t devices) {
  EXPECTS(devices > 0);
  Partition partition;
  Part& part = partition.parts.emplace_back();
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    if (graph.ops[o].phase != Phase::update && !graph.ops[o].is_view) part.ops.push_back(id_at<OpId>(o));
  }
  partition.order.resize(devices);
  for (std::uint32_t m = 0; m < micro_batches; ++m) partition.order[0].push_back({PartId{0}, m});
  return partition;
}

}  // namespace plimsoll
