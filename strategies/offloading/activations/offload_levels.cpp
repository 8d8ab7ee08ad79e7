#include "strategies/offloading/activations/offload_levels.h"

#include <algorithm>

#include "sim/core/tape.h"

namespace plimsoll {

std::vector<Bytes> memory_levels(Bytes least, Bytes most, std::optional<std::int64_t> wanted, std::size_t positions,
                                 std::size_t fewest) {
  constexpr std::size_t effort = 24'000;
  const std::size_t usual = std::clamp<std::size_t>(effort / std::max<std::size_t>(positions, 1), fewest, 40);
  const std::int64_t asked = wanted.value_or(static_cast<std::int64_t>(usual));
  const auto count = static_cast<std::uint32_t>(std::min(asked, (most - least).count));
  std::vector<Bytes> levels;
  for (std::uint32_t level = 0; level < count; ++level) {
    levels.push_back(least + range_of(most - least, {level, count}).offset);
  }
  return levels;
}

}  // namespace plimsoll
