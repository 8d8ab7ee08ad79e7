#include "validate/cpu/block_pool.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "validate/networks/packing.h"

namespace plimsoll {

void BlockPool::Free::operator()(std::byte* block) const {
  std::free(block);
}

std::byte* BlockPool::take(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  std::vector<std::byte*>& free = free_[bytes];
  if (!free.empty()) {
    std::byte* block = free.back();
    free.pop_back();
    return block;
  }
  const Bytes size = aligned(std::max(bytes, Bytes{1}));
  auto* block = static_cast<std::byte*>(
      std::aligned_alloc(static_cast<std::size_t>(alignment), static_cast<std::size_t>(size.count)));
  if (block == nullptr) throw std::bad_alloc();
  blocks_.emplace_back(block);
  return block;
}

void BlockPool::give_back(std::byte* block, Bytes bytes) {
  const std::lock_guard lock(mutex_);
  free_[bytes].push_back(block);
}

}  // namespace plimsoll
