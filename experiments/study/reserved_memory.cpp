#include "experiments/study/reserved_memory.h"

#include <fmt/format.h>

#include "sim/io/quantity.h"

namespace plimsoll {
namespace {

std::string sentence(const OutOfMemory& failed) {
  const std::string what = failed.step ? fmt::format("step {}", failed.step->index) : "before the first step";
  const std::string why =
      failed.is_fragmentation()
          ? fmt::format("fragmented: {} are not in use, the largest free block has {}",
                        format_bytes(failed.limit - failed.active), format_bytes(failed.largest_free))
          : fmt::format("too few bytes: {} are not in use", format_bytes(failed.limit - failed.active));
  return fmt::format("{} asks for {} of {}, {}", what, format_bytes(failed.requested), format_bytes(failed.limit), why);
}

}  // namespace

std::vector<std::string> out_of_memory(AllocatorKind kind, const Platform& platform,
                                       std::span<const ReservedPeak> reserved) {
  std::vector<std::string> failed;
  for (std::size_t d = 0; d < reserved.size(); ++d) {
    if (!reserved[d].out_of_memory) continue;
    const std::string why = kind == AllocatorKind::planned
                                ? fmt::format("the plan takes {} of {}", format_bytes(reserved[d].reserved),
                                              format_bytes(reserved[d].out_of_memory->limit))
                                : sentence(*reserved[d].out_of_memory);
    failed.push_back(fmt::format("on {}: {}", platform.devices[d].name, why));
  }
  return failed;
}

}  // namespace plimsoll
