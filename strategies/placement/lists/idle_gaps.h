#pragma once
// The idle times of one processor in a schedule that is filled out of order, and the first that is long enough.

#include <vector>

#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// In blocks of neighbours that know their longest: what is sought is found over the roots of what there is.
class IdleGaps {
 public:
  IdleGaps();

  /// The first time from `ready` on from which the processor is idle so long.
  Nanoseconds earliest(Nanoseconds ready, Nanoseconds time) const;
  /// The processor runs so long from `start` on; it must be idle then.
  void take(Nanoseconds start, Nanoseconds time);

 private:
  struct Gap {
    Nanoseconds begin, end;
  };
  using Block = std::vector<Gap>;

  std::size_t block_at(Nanoseconds time) const;
  void find_longest(std::size_t block);
  void split(std::size_t block);

  std::vector<Block> blocks_;         // none is empty, ascending
  std::vector<Nanoseconds> begins_;   // by block: of its first gap
  std::vector<Nanoseconds> longest_;  // by block
};

}  // namespace plimsoll
