#pragma once
// How a schedule is to be run, and what a run measures: the same for every backend.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/platform.h"
#include "sim/core/timeline.h"
#include "sim/memory/addresses.h"
#include "validate/batch.h"
#include "validate/networks/update_step.h"
#include "validate/reference/chance.h"

namespace plimsoll {

enum class Pace : std::uint8_t { links, memcpy };  ///< copies take at least their time on the links, or what they take

struct ReplayOptions {
  Pace pace = Pace::links;  ///< of the CPU backend; a GPU's copies take what they take
  /// Whose links copies are held to, in the shape of the problem's platform; unset: that platform's. A measured one has
  /// the delays of copies that were held back in it, which would come twice.
  const Platform* links = nullptr;
  bool poisons = false;          ///< fills what is new or freed with a pattern that spoils every result made of it
  bool keeps_values = false;     ///< hands back what is in memory at the end
  bool keeps_gradients = false;  ///< and gradients of parameters as they were when they were freed; the CPU backend
  /// The dates at which steps are expected. A GPU's host issues them in that order, and gives memory from what is
  /// expected to have ended to what begins then; unset: in the order of the schedule.
  std::optional<Timeline> expected = {};
  /// Stream-ordered memory is reserved anew, so that `reserved` is this run's. It takes time: else what runs since then
  /// reserved is kept.
  bool empties_pools = false;
  /// Every device's buffers and workspaces lie in one block, at these offsets; null: memory comes piece by piece.
  const Addresses* addresses = nullptr;
  // --- of the CPU backend
  Chance chance = {};            ///< of packed forms
  const Batch* batch = nullptr;  ///< what is trained on; null: the numbers and labels of networks/initial_values.h
  /// Parameters, statistics and states of optimizers before the first step, by name; null: initial_value() of each.
  const std::map<std::string, std::vector<std::byte>>* start = nullptr;
  UpdateStep update = {};
};

/// What a device's allocator took at most.
struct AllocatorPeaks {
  Bytes reserved;   ///< from the device
  Bytes allocated;  ///< in blocks that were handed out
};

/// What was measured: dates from the start of the first step, and the peaks of live bytes that belong to them.
struct Replayed {
  Timeline timeline;
  /// Parameters, their gradients and states by name, as they are at the end, wherever that is.
  std::map<std::string, std::vector<std::byte>> values;
  /// By memory of the platform; nothing where no allocator gave it.
  std::vector<std::optional<AllocatorPeaks>> allocators = {};
  std::vector<Score> scores = {};  ///< by micro-batch, of a run with a batch
};

}  // namespace plimsoll
