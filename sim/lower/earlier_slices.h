#pragma once
// What steps on a slice of a sequence read of the slices before it: of lowering.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "sim/lower/live_copies.h"

namespace plimsoll {

class EarlierSlices {
 public:
  explicit EarlierSlices(const Graph&);

  /// Adds to the step what it reads of earlier slices, and what of its own slice is there from a run before. Throws
  /// CannotLower where a tape has dropped it.
  void read(LiveCopies&, OpId, std::uint32_t micro_batch, DeviceId, NewStep&,
            std::vector<std::pair<TensorId, Copy*>>& used) const;

 private:
  const Graph& graph_;
  std::uint32_t slices_;
  std::vector<std::optional<TensorId>> attended_;  ///< by op; empty where there are no slices
};

}  // namespace plimsoll
