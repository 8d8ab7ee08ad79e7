#pragma once
// The strategy `revolve_hetero`: Revolve for stages of unequal times and sizes, where memory stands for slots.

#include <array>

#include "strategies/common/chain_model.h"
#include "strategies/common/option_rules.h"
#include "strategies/rematerialization/rotor/block_table.h"
#include "strategies/strategy.h"

namespace plimsoll {

/// Every stage a block with one option, which only the last stage of a sub-chain may use.
std::vector<Block> revolve_blocks(const ChainModel&);

std::vector<TapeOutcome> revolve_hetero_tapes(const PartTask&, const Options&,
                                              std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> revolve_hetero_candidates(const PartTask&, const Options&);

inline constexpr std::array revolve_hetero_options{OptionInfo{
    .name = "slots",
    .default_value = "500",
    .values = "a whole number from 1 to 100000",
    .help = "sizes are rounded up to 1/slots of the memory that the fastest schedule takes (not where their common "
            "divisor is that large); fewer for more than 365 stages",
    .allowed = [](std::string_view text) { return integer_between<1, 100'000>(text); },
}};

inline constexpr StrategyInfo revolve_hetero_strategy{
    .name = "revolve_hetero",
    .family = Family::rematerialization,
    .summary = "Revolve for unequal stages: keeps inputs of stages only, each stage saves right before its backward",
    .source =
        "Griewank, Walther, 'Algorithm 799: revolve', 2000; the heterogeneous variant that Beaumont et al., "
        "'Optimal checkpointing for heterogeneous chains', 2019, compare with",
    .chains_only = true,
    .options = revolve_hetero_options,
    .tapes = revolve_hetero_tapes,
    .candidates = revolve_hetero_candidates,
};

}  // namespace plimsoll
