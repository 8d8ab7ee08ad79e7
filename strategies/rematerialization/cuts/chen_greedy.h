#pragma once
// The strategy `chen_greedy`: segments are closed as soon as what they leave for the backward exceeds b bytes.
// Source: Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory Cost", 2016, algorithm 3, where b is
// searched for; here over every b that changes the segments.

#include <array>

#include "sim/io/quantity.h"
#include "strategies/common/chain_model.h"
#include "strategies/common/checkpoint_segments.h"
#include "strategies/strategy.h"

namespace plimsoll {

struct GreedySegments {
  std::vector<Segment> segments;
  std::optional<Bytes> next;  ///< the least larger b that gives other segments
};

/// A segment ends with the stage whose saved bytes take it above b; the last one is not recomputed.
GreedySegments greedy_segments(const ChainModel&, Bytes b);

/// Every b that gives segments of its own, ascending; of more than 1000 an even selection with both ends.
std::vector<Bytes> greedy_parameters(const ChainModel&);

std::vector<TapeOutcome> chen_greedy_tapes(const PartTask&, const Options&,
                                           std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> chen_greedy_candidates(const PartTask&, const Options&);

inline constexpr std::array chen_greedy_options{OptionInfo{
    .name = "b",
    .default_value = "auto",
    .values = "auto or a size, such as 300MB",
    .help = "bytes from which a segment is closed; auto: the size whose schedule is the fastest within the budget",
    .allowed = [](std::string_view text) { return text == "auto" || parse_bytes(text).fine(); },
}};

inline constexpr StrategyInfo chen_greedy_strategy{
    .name = "chen_greedy",
    .family = Family::rematerialization,
    .summary = "cuts the chain wherever a segment's activations exceed a size, and recomputes one segment at a time",
    .source = "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, algorithm 3",
    .chains_only = true,
    .options = chen_greedy_options,
    .tapes = chen_greedy_tapes,
    .candidates = chen_greedy_candidates,
};

}  // namespace plimsoll
