#pragma once
// Which allocator a device's memory is replayed with.

#include <cstdint>

namespace plimsoll {

enum class AllocatorKind : std::uint8_t {
  exact,           ///< live bytes, as if every buffer fitted anywhere
  cuda,            ///< PyTorch's CUDA caching allocator with its default (native) segments
  cuda_expandable  ///< the same with expandable segments
};

}  // namespace plimsoll
