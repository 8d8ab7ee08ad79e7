#pragma once
// Who holds how many bytes of one memory: live and peak, to the byte, and a capacity that is refused to be exceeded.

#include <algorithm>
#include <optional>

#include "sim/core/timeline.h"

namespace plimsoll {

class MemoryLedger {
 public:
  explicit MemoryLedger(std::optional<Bytes> capacity) : capacity_(capacity) {}

  bool has_room_for(Bytes bytes) const { return !capacity_ || live_ + bytes <= *capacity_; }
  Bytes free() const { return capacity_.value_or(largest_bytes) - live_; }

  /// What a step, or nobody before the first one, takes at once.
  void take(Bytes bytes, std::optional<StepId> by) {
    live_ += bytes;
    if (live_ <= peak_.bytes) return;
    peak_ = {live_, by.value_or(StepId{}), !by};
  }
  void give_back(Bytes bytes) { live_ -= bytes; }

  Bytes live() const { return live_; }
  MemoryPeak peak() const { return peak_; }

 private:
  std::optional<Bytes> capacity_;
  Bytes live_;
  MemoryPeak peak_;
};

}  // namespace plimsoll
