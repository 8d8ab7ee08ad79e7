#pragma once
// One value of a collective among the ranks of a group, as a library such as NCCL carries it: one call a rank, with
// blocks of equal size in the order of the group. Where a tensor does not lie so, its bytes are put in order before and
// behind.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "validate/ranks/value_exchange.h"

namespace plimsoll {

/// Rows of bytes from one place to another.
struct RowMove {
  std::int64_t from = 0, to = 0, bytes = 0;
  std::int64_t rows = 1, from_stride = 0, to_stride = 0;

  friend bool operator==(const RowMove&, const RowMove&) = default;
};

/// Of one rank of the group.
struct RankCarries {
  /// What it sends, or receives, lies in its tensor from this byte on; unset: in a staging buffer.
  std::optional<std::int64_t> sends_from, receives_at;
  std::vector<RowMove> packs;    ///< from the tensor to the staging buffer
  std::vector<RowMove> unpacks;  ///< from the staging buffer to the tensor
  std::vector<RowMove> keeps;    ///< from what it gives to what it gets, of its own
  /// Of an all_to_all: bytes to and from each rank of the group, one behind the other.
  std::vector<std::int64_t> sent, received;
};

struct GroupExchange {
  enum class Call : std::uint8_t { none, all_reduce, reduce_scatter, all_gather, all_to_all };
  Call call = Call::none;
  std::int64_t each = 0;                       ///< bytes of a block; of an all_reduce all of them
  std::vector<RankCarries> ranks;              ///< in the order of the group
  std::int64_t staged_out = 0, staged_in = 0;  ///< bytes of staging that a rank needs at most
};

/// `in_place`: what a rank gives and what it gets are one tensor.
GroupExchange group_exchange(const ValueExchange&, std::span<const std::uint32_t> group, bool in_place);

/// Each rank's whole tensor to the next one.
GroupExchange shift_exchange(std::int64_t bytes, std::size_t ranks);

}  // namespace plimsoll
