#pragma once
// The search of `offload_exact`: a tape's computes in their order, values that leave whole and come back whole between
// their uses, in any order, one copy at a time each way, copies to the host as soon as the one before them has ended.
//
// Best first over rows of decisions: the next compute begins, a value is asked back, values that have been made are
// sent behind each other. Each begins as early as the row before it and memory allow. Of two rows that have begun,
// sent and asked back the same, one that is no later in anything makes the other needless; a row's bound is the date
// that it has reached and the least time from there in pieces of any size (offload_bound.h).

#include <cstdint>
#include <optional>

#include "strategies/offloading/activations/offload_moves.h"

namespace plimsoll {

/// What memory may be counted on that a copy to the host sets free.
enum class Dates : std::uint8_t {
  waited_for,  ///< what has been waited for: the budget holds whatever copies take, and a tape can say it
  known,       ///< what is free at its date: no tape of this order of computes does better
};

struct OffloadSearch {
  std::optional<Tape> tape;         ///< the fastest, where one is faster than the limit and dates are waited for
  std::optional<Seconds> bound;     ///< no schedule takes less; unset: none is faster than the limit
  std::optional<Seconds> makespan;  ///< of the fastest, for one micro-batch, if nobody shares the links
  bool complete = true;             ///< it did not end for its count of rows
};

/// Up to 20 items. `enough`: a makespan at which the search may stop. `most_rows` are kept at most.
OffloadSearch search_offloads(const OffloadModel&, const std::vector<OffloadItem>&, Bytes budget, Dates, Seconds enough,
                              Seconds limit, std::size_t most_rows);

}  // namespace plimsoll
