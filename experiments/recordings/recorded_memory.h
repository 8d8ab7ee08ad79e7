#pragma once
// What a recording's memory events say of one step: how much was allocated, and when each block came and went.

#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "experiments/recordings/recorded_step.h"

namespace plimsoll {

struct RecordedBlock {
  static constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();

  Nanoseconds allocated = 0, freed = never;
  Bytes bytes;  ///< rounded, as the allocator hands them out
  std::uint32_t thread = 0;
};

struct RecordedMemory {
  std::vector<RecordedBlock> blocks;  ///< of the step, by when they came
  Bytes before, peak, behind;         ///< allocated in all
};

/// Which blocks have found a tensor so far, by thread: operators take the latest that nobody has.
class BlockClaims {
 public:
  explicit BlockClaims(const RecordedMemory&);

  /// What an operator took.
  struct Range {
    std::uint32_t thread = 0;
    Nanoseconds start = 0, end = 0;
  };
  /// For a tensor that outlives its operator, perhaps allocated just before it.
  std::optional<std::size_t> claim(Range, Bytes tensor);
  /// What is left of what came within the operator.
  std::vector<std::size_t> rest(Range);

 private:
  struct Thread {
    std::vector<std::size_t> blocks, open;
    std::size_t next = 0;  ///< of the blocks: which is not open yet
  };
  std::vector<std::size_t>& open_at(Range);

  const RecordedMemory& memory_;
  std::unordered_map<std::uint32_t, Thread> threads_;
};

/// Of the device with the most events; unset where the step has none.
std::optional<RecordedMemory> memory_of_step(const StepRecording&, StepWindow);

/// Whether a tensor of so many bytes may have got this block: small ones are cut to multiples of 512 bytes, of large
/// ones up to 1 MiB is not cut off.
bool may_hold(const RecordedBlock&, Bytes tensor);

}  // namespace plimsoll
