#pragma once
// What the options `stages` and `cut` of pipelining strategies ask for.

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/model/problem.h"
#include "strategies/api/strategy.h"
#include "strategies/pipelining/cuts/cuts.h"
#include "strategies/pipelining/cuts/line_options.h"
#include "strategies/pipelining/orders/orders.h"
#include "strategies/pipelining/planners/range_fits.h"

namespace plimsoll {

/// The value of `cut` that plans are made for, one cut after the other, before a strategy is asked.
inline constexpr std::string_view joint_cut = "joint";

/// How many ranks the option `stages` asks for, or the cut that is given, `parts_a_rank` parts of the chain on each.
/// Throws InputError where the platform has fewer devices or the chain fewer stages.
std::uint32_t ranks_of(const Problem&, const LineOptions&, std::string_view strategy, std::uint32_t parts_a_rank = 1);

/// Whether stages of the chain fit a device in plain training. `waiting`: of a part by the ranks behind it that each of
/// its own feeds, none first.
RangeFits plain_fits(const Problem&, Bytes budget, bool weights_apart, std::vector<Waiting> waiting);

/// What stages of the chain take of a device in plain training, with so many micro-batches that it keeps.
RangeBytes plain_bytes(const Problem&);

/// Each part of the model on one rank. Planners are asked where each rank has one part, in their order, about plain
/// training within the budget, with what waits in the order or, where it follows from the cut, in ZB-H1's.
StageCut asked_cut(const Problem&, const LineOptions&, std::string_view strategy, const PipelineOrder& placed,
                   const std::optional<Bytes>& budget);

/// For orders that can share a part among several ranks; `waiting` as of plain_fits.
StageCut asked_cut_with_copies(const Problem&, const LineOptions&, std::string_view strategy, std::uint32_t ranks,
                               std::vector<Waiting> waiting, const std::optional<Bytes>& budget);

}  // namespace plimsoll
