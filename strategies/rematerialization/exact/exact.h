#pragma once
// The fastest schedule of a part within a budget among all there are: A* over what is resident.
// A state is the set of values that are there and of ops that must run and have run; a step runs an op and, only where
// room is needed, drops a smallest set of values that makes it. Keeping more never hurts, so nothing is lost by that.
// The bound: every op that must still run for what is left takes its time once.
// Source: the formulation as a graph search over resident sets is our own; A* after Hart, Nilsson, Raphael, 1968.

#include <cstdint>
#include <optional>

#include "strategies/api/strategy.h"
#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {

/// A state takes up to 250 bytes of memory.
struct SearchLimits {
  std::size_t states = 2'000'000;
  double seconds = 10;
};

struct SearchResult {
  enum class End : std::uint8_t { solved, impossible, out_of_states, out_of_time };
  End end = End::out_of_states;
  OpSequence sequence;  ///< where solved
  Seconds bound;        ///< no schedule within the budget takes less, updates and later micro-batches not counted
  std::size_t states = 0;
};

/// Values, inputs twice, and ops that must run: the bits of a state.
std::size_t state_bits(const OpModel&);
inline constexpr std::size_t most_state_bits = 128;

/// Whether the search can hold the part's states.
inline bool is_searchable(const OpModel& model) {
  return state_bits(model) <= most_state_bits;
}

/// The fastest schedule within the budget.
SearchResult fastest_schedule(const OpModel&, Bytes budget, const SearchLimits&);

/// Any schedule within the budget.
SearchResult any_schedule(const OpModel&, Bytes budget, const SearchLimits&);

/// The largest working set of an op, what certainly is there with it included: below it nothing is possible.
Bytes least_imaginable(const OpModel&);

// The strategy `exact`: the fastest of all schedules within the budget.

/// The schedule of least peak, by halving: whether a budget is enough is a search that needs no times. Not below what
/// `known` reaches where the search cannot hold the part or a limit stops it, and then it is not proven. The limits'
/// seconds are those of all halvings together.
struct SmallestSchedule {
  PlannedTape plan;
  Bytes below;            ///< nothing is possible with less
  SearchResult::End end;  ///< which limit stopped a search, if one did

  bool proven() const { return end == SearchResult::End::solved; }
};
SmallestSchedule smallest_schedule(const PartTask&, const OpModel&, const PlanPool& known, const SearchLimits&);

}  // namespace plimsoll
