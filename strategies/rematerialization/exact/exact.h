#pragma once
// The strategy `exact`: the fastest of all schedules within the budget (exact_search.h).

#include <array>

#include "strategies/common/op_sequence.h"
#include "strategies/common/option_rules.h"
#include "strategies/rematerialization/exact/exact_search.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> exact_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                     const Tape* before);

std::vector<Bytes> exact_candidates(const PartTask&, const Options&);

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

inline constexpr std::array exact_options{
    OptionInfo{
        .name = "states",
        .default_value = "2000000",
        .values = "a whole number from 1 to 100000000",
        .help = "where the search for one budget stops; the best plan of all cheaper methods then comes with its "
                "proven gap",
        .allowed = integer_between<1, 100'000'000>,
    },
    OptionInfo{
        .name = "time_limit",
        .default_value = "10",
        .values = "a whole number of seconds from 1 to 86400",
        .help =
            "the same by the clock; the cheaper methods run to their end, Checkmate's relaxations for as long again",
        .allowed = integer_between<1, 86'400>,
    },
};

inline constexpr StrategyInfo exact_strategy{
    .name = "exact",
    .family = Family::rematerialization,
    .summary = "the fastest of all recomputations of a graph or chain, by search over sets of resident values",
    .source = "own; A* after Hart, Nilsson, Raphael, 1968",
    .chains_only = false,
    .options = exact_options,
    .tapes = exact_tapes,
    .candidates = exact_candidates,
};

}  // namespace plimsoll
