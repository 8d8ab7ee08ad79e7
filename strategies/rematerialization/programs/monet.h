#pragma once
// The strategy `monet`: which op runs again, and in which of its implementations each run is, chosen together.
// Source: Shah, Wu, Mohan, Chidambaram, Krähenbühl, "Memory Optimization for Deep Networks", ICLR 2021. There one
// integer program over stages of a network; here Checkmate's program with a choice of implementation for each run
// (checkmate_model.h), so that without alternatives it is Checkmate's.

#include <array>

#include "strategies/common/option_rules.h"
#include "strategies/common/solver_options.h"
#include "strategies/strategy.h"

namespace plimsoll {

std::vector<TapeOutcome> monet_tapes(const PartTask&, const Options&, std::span<const std::optional<Bytes>> budgets,
                                     const Tape* before);

std::vector<Bytes> monet_candidates(const PartTask&, const Options&);

inline constexpr std::array monet_options{
    time_limit_option,
    nodes_option,
    OptionInfo{
        .name = "most_ops",
        .default_value = "100",
        .values = "a whole number from 0 to 1000",
        .help = "larger graphs get the best known plan, without the integer program",
        .allowed = integer_between<0, 1'000>,
    },
};

inline constexpr StrategyInfo monet_strategy{
    .name = "monet",
    .family = Family::rematerialization,
    .summary = "chooses recomputation and the implementation of every op together, by integer programming",
    .source = "Shah, Wu, Mohan, Chidambaram, Kraehenbuehl, 'Memory Optimization for Deep Networks', ICLR 2021",
    .chains_only = false,
    .options = monet_options,
    .tapes = monet_tapes,
    .candidates = monet_candidates,
};

}  // namespace plimsoll
