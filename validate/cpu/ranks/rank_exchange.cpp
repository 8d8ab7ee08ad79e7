#include "validate/cpu/ranks/rank_exchange.h"

#include <cstring>

#include "validate/cpu/ranks/rank_sum.h"

namespace plimsoll {

void exchange(const ValueExchange& value, std::span<const std::uint32_t> group, std::span<const std::byte* const> from,
              std::span<std::byte* const> to) {
  std::vector<std::byte> whole(static_cast<std::size_t>(value.whole.count));
  for (std::size_t g = 0; g < group.size(); ++g) {
    for (const RankPiece& piece : value.from[group[g]]) {
      if (value.sums && g > 0) {
        add_numbers(whole.data() + piece.whole, from[g] + piece.own, Bytes{piece.bytes});
      } else {
        std::memcpy(whole.data() + piece.whole, from[g] + piece.own, static_cast<std::size_t>(piece.bytes));
      }
    }
  }
  for (std::size_t g = 0; g < group.size(); ++g) {
    for (const RankPiece& piece : value.to[group[g]]) {
      std::memcpy(to[g] + piece.own, whole.data() + piece.whole, static_cast<std::size_t>(piece.bytes));
    }
  }
}

}  // namespace plimsoll
