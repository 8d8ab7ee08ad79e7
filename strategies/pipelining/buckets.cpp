#include "strategies/pipelining/buckets.h"

#include "strategies/pipelining/pipeline.h"

namespace plimsoll {

std::vector<PartitionOutcome> in_buckets(std::vector<PartitionOutcome> outcomes, const Options& options) {
  const std::string_view asked = options.text("buckets");
  if (asked == "off") return outcomes;
  const Bytes size = parse_bytes(asked).value;
  return each_changed(std::move(outcomes), [size](Partition& partition) { partition.bucket = size; });
}

}  // namespace plimsoll
