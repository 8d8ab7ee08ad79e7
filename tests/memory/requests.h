#pragma once
// Requests of an allocator, by hand.

#include <catch2/catch.hpp>
#include <cstdint>
#include <optional>

#include "sim/memory/caching_allocator.h"

namespace plimsoll::test {

inline constexpr std::int64_t KiB = 1 << 10, MiB = 1 << 20, GiB = 1 << 30;
inline constexpr StreamId main_stream{0}, side_stream{1}, other_stream{2};

inline BlockId take(CachingAllocator& allocator, std::int64_t bytes, StreamId stream = main_stream) {
  const std::optional<BlockId> block = allocator.allocate({bytes}, stream);
  REQUIRE(block.has_value());
  return *block;
}

}  // namespace plimsoll::test
