#include "validate/networks/packing.h"

#include <algorithm>
#include <numeric>

namespace plimsoll {

Packing pack(std::span<const Temporary> blocks) {
  std::vector<std::size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::size_t b) { return blocks[b].bytes; });
  Packing packing{std::vector<Bytes>(blocks.size()), Bytes{0}};
  std::vector<std::size_t> placed;  // by rising offset
  for (const std::size_t b : order) {
    Bytes offset;
    for (const std::size_t other : placed) {
      if (blocks[other].last < blocks[b].first || blocks[b].last < blocks[other].first) continue;
      if (offset + blocks[b].bytes <= packing.offsets[other]) break;
      offset = std::max(offset, packing.offsets[other] + aligned(blocks[other].bytes));
    }
    packing.offsets[b] = offset;
    packing.size = std::max(packing.size, offset + blocks[b].bytes);
    const auto behind = std::ranges::upper_bound(placed, offset, {}, [&](std::size_t p) { return packing.offsets[p]; });
    placed.insert(behind, b);
  }
  return packing;
}

}  // namespace plimsoll
