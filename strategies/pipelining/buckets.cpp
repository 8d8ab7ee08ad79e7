#include "strategies/pipelining/buckets.h"

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {

std::vector<PartitionOutcome> in_buckets(std::vector<PartitionOutcome> outcomes, const LineOptions& options) {
  if (!options.bucket) return outcomes;
  return each_changed(std::move(outcomes), [size = *options.bucket](Partition& partition) { partition.bucket = size; });
}

}  // namespace plimsoll
