#pragma once
// What PyTorch's memory snapshots call the allocator's actions and the states of blocks.

#include <array>
#include <string_view>
#include <utility>

#include "sim/memory/caching_allocator.h"

namespace plimsoll {

/// The first name of a value is the one that is written.
inline constexpr std::array snapshot_actions{
    std::pair{AllocatorAction::alloc, std::string_view("alloc")},
    std::pair{AllocatorAction::free_requested, std::string_view("free_requested")},
    std::pair{AllocatorAction::free_completed, std::string_view("free_completed")},
    std::pair{AllocatorAction::segment_alloc, std::string_view("segment_alloc")},
    std::pair{AllocatorAction::segment_free, std::string_view("segment_free")},
    std::pair{AllocatorAction::segment_map, std::string_view("segment_map")},
    std::pair{AllocatorAction::segment_unmap, std::string_view("segment_unmap")},
    std::pair{AllocatorAction::oom, std::string_view("oom")}};
inline constexpr std::array snapshot_block_states{
    std::pair{BlockState::allocated, std::string_view("active_allocated")},
    std::pair{BlockState::pending, std::string_view("active_pending_free")},
    std::pair{BlockState::pending, std::string_view("active_awaiting_free")},
    std::pair{BlockState::free, std::string_view("inactive")}};

template <class Value, std::size_t n>
std::string_view snapshot_name(const std::array<std::pair<Value, std::string_view>, n>& names, Value value) {
  std::size_t i = 0;
  while (names[i].first != value) ++i;
  return names[i].second;
}

}  // namespace plimsoll
