#pragma once
// Where temporaries lie in one workspace: blocks with lifetimes get offsets, so that none overlaps another that is
// alive at the same time.

#include <span>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

/// Alive from instant `first` to instant `last`, both included.
struct Temporary {
  Bytes bytes;
  std::size_t first = 0, last = 0;
};

struct Packing {
  std::vector<Bytes> offsets;  ///< one a block, multiples of `alignment`
  Bytes size;
};

inline constexpr std::int64_t alignment = 64;

constexpr Bytes aligned(Bytes bytes) {
  return Bytes{(bytes.count + alignment - 1) / alignment * alignment};
}

/// First fit, the largest block first; ties by index.
Packing pack(std::span<const Temporary>);

}  // namespace plimsoll
