#pragma once
// The strategy `full_recompute`: layers are recomputed from their input, as Megatron's recompute granularity "full".

#include <array>

#include "strategies/common/checkpoint_segments.h"
#include "strategies/common/option_rules.h"
#include "strategies/strategy.h"

namespace plimsoll {

enum class RecomputeMethod : std::uint8_t {
  uniform,  ///< all layers, in groups of `layers` that are recomputed together
  block,    ///< the first `layers` layers, each on its own; the others keep everything
};

/// The layers are the stages but the last, which is the loss.
std::vector<Segment> full_recompute_segments(std::size_t stages, RecomputeMethod, std::size_t layers);

std::vector<TapeOutcome> full_recompute_tapes(const PartTask&, const Options&,
                                              std::span<const std::optional<Bytes>> budgets, const Tape* before);

std::vector<Bytes> full_recompute_candidates(const PartTask&, const Options&);

inline constexpr std::array full_recompute_options{
    OptionInfo{
        .name = "method",
        .default_value = "uniform",
        .values = "uniform or block",
        .help = "uniform: every layer, in groups of `layers`; block: the first `layers` layers one by one, no others",
        .allowed = [](std::string_view text) { return text == "uniform" || text == "block"; },
    },
    OptionInfo{
        .name = "layers",
        .default_value = "1",
        .values = "auto or a whole number from 1",
        .help = "Megatron's --recompute-num-layers; auto: the number that is the fastest within the budget",
        .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 1'000'000>(text); },
    }};

inline constexpr StrategyInfo full_recompute_strategy{
    .name = "full_recompute",
    .family = Family::rematerialization,
    .summary = "recomputes every stage from its input, as Megatron's full activation recomputation per layer",
    .source =
        "Megatron-LM, --recompute-granularity full; Korthikanti et al., 'Reducing Activation Recomputation in "
        "Large Transformer Models', 2022",
    .chains_only = true,
    .options = full_recompute_options,
    .tapes = full_recompute_tapes,
    .candidates = full_recompute_candidates,
};

}  // namespace plimsoll
