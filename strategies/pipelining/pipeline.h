#pragma once
// What pipelining strategies share: options, and the partition of a chain that follows from an order and a cut.

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/common/option_rules.h"
#include "strategies/pipelining/orders.h"
#include "strategies/pipelining/part_costs.h"
#include "strategies/pipelining/planner_cuts.h"
#include "strategies/strategy.h"

namespace plimsoll {

inline constexpr OptionInfo stages_option{
    .name = "stages",
    .default_value = "auto",
    .values = "auto or a whole number from 1 to 4096",
    .help =
        "how many devices make the pipeline, the platform's first ones; auto: all of them, as far as the model has "
        "stages",
    .allowed = [](std::string_view text) { return text == "auto" || integer_between<1, 4096>(text); },
};

inline constexpr OptionInfo cut_option{
    .name = "cut",
    .default_value = "balanced",
    .values = "uniform, balanced, pipedream, ideals, piper, alpa or madpipe",
    .help =
        "uniform: each part has as many stages of the model; balanced: the longest part is as short as can be; the "
        "others are published planners, for one part a device",
    .allowed = [](std::string_view text) { return text == "uniform" || text == "balanced" || is_planner_cut(text); },
};

inline constexpr OptionInfo backward_option{
    .name = "backward",
    .default_value = "whole",
    .values = "whole or split",
    .help = "split: the gradient of a stage's input is sent before the gradients of its weights are made",
    .allowed = [](std::string_view text) { return text == "whole" || text == "split"; },
};

inline constexpr OptionInfo limit_option{
    .name = "limit",
    .default_value = "1",
    .values = "a number from 0.01 to 100",
    .help = "activations that a device may keep, in multiples of those of as many micro-batches as there are devices",
    .allowed = number_between<1, 10'000, 100>,
};

/// Of `backward_option`.
bool is_backward_split(const Options&);

/// How many ranks the option `stages` asks for, `parts_a_rank` parts of the chain on each. Throws InputError where the
/// platform has fewer devices or the chain fewer stages.
std::uint32_t ranks_of(const Problem&, const Options&, std::string_view strategy, std::uint32_t parts_a_rank = 1);

/// The chain cut as the option `cut` says, part g on device rank_of[g]; `weights_apart` and `stage_of` as of
/// PipelineOrder.
Partition cut_for(const Problem&, const Options&, std::string_view strategy, std::span<const std::uint32_t> rank_of,
                  bool weights_apart, std::span<const std::uint32_t> stage_of = {});

/// Of a partition's parts, in plain training.
PartCosts part_costs(const Problem&, const Partition&);

/// The order on the platform's first devices, the chain cut as the option `cut` says; the same for all budgets. `note`
/// and `updates` as of Partition. Throws InputError where a part has nothing to train, or a backward that is to be
/// split is not.
std::vector<PartitionOutcome> pipeline(const Problem&, const Options&, std::string_view strategy, const PipelineOrder&,
                                       std::span<const std::optional<Bytes>> budgets, std::string note = {},
                                       Updates updates = {});

/// A partition's order.
PipelineOrder order_of(const Partition&);

}  // namespace plimsoll
