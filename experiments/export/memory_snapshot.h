#pragma once
// What PyTorch's torch.cuda.memory._snapshot() gives: the segments of the caching allocator, and the history of what it
// did, as a pickle.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/core/units.h"
#include "sim/memory/allocator_settings.h"
#include "sim/memory/caching_allocator.h"

namespace plimsoll {

/// Which pool a segment belongs to: {0, 0} unless it is of a CUDA graph or a MemPool.
using SnapshotPool = std::pair<std::int64_t, std::int64_t>;

struct SnapshotBlock {
  std::int64_t address = 0;
  Bytes size, requested;
  BlockState state = BlockState::free;   ///< not unmapped
  std::optional<std::uint32_t> frame{};  ///< of MemorySnapshot::frames
};

struct SnapshotSegment {
  std::uint32_t device = 0;
  std::int64_t address = 0;
  std::int64_t stream = 0;  ///< PyTorch's: a handle
  SnapshotPool pool{};
  Bytes total;
  bool small = false, expandable = false;
  std::vector<SnapshotBlock> blocks;  ///< by address
};

struct SnapshotEvent {
  AllocatorAction action = AllocatorAction::alloc;
  std::int64_t address = 0;  ///< of `oom`: the free bytes of the device
  Bytes size;
  std::int64_t stream = 0;
  std::int64_t time_us = 0;
  std::optional<std::uint32_t> frame{};  ///< of MemorySnapshot::frames
};

/// Where in the program something was allocated: here the op and the step.
struct SnapshotFrame {
  std::string name, file;
  std::uint32_t line = 0;
};

struct MemorySnapshot {
  std::vector<SnapshotSegment> segments;
  std::vector<std::vector<SnapshotEvent>> traces;  ///< by device
  std::optional<CachingSettings> settings;         ///< where the file has them
  std::vector<SnapshotFrame> frames;               ///< only written, not read
};

/// Throws InputError where the file is no such pickle; what it says of Python's frames is not read.
MemorySnapshot read_memory_snapshot(const std::string& file);

/// As PyTorch pickles it, with all keys that its viewer reads. Deterministic.
std::string pickled(const MemorySnapshot&);

}  // namespace plimsoll
