#pragma once
// What must leave a memory at least, of values that are each kept until they are read for the last time.

#include <algorithm>
#include <cstddef>
#include <map>

#include "sim/core/units.h"

namespace plimsoll {

/// At an instant at which so much must be away, that which is read last is taken first: it is away at most of the later
/// instants, so that no other choice moves less. A value leaves in parts of any size, once, and is away until then.
class LeastAway {
 public:
  void keep(Bytes bytes, std::size_t until) { kept_[until].here += bytes; }

  /// At this instant so much of all that is kept, or all of it.
  void need(Bytes together) {
    for (auto each = kept_.rbegin(); each != kept_.rend() && away_ < together; ++each) {
      const Bytes leaves = std::min(each->second.here, together - away_);
      each->second.here -= leaves;
      each->second.away += leaves;
      away_ += leaves;
      moved_ += leaves;
    }
  }

  /// What is kept until then is gone.
  void end(std::size_t until) {
    away_ -= kept_[until].away;
    kept_.erase(until);
  }

  /// All that has left.
  Bytes moved() const { return moved_; }

 private:
  struct Values {
    Bytes here, away;
  };
  std::map<std::size_t, Values> kept_;  // by end
  Bytes away_, moved_;
};

}  // namespace plimsoll
