#pragma once
// From a problem to what planners of placements see, and from their answer to a partition: options, and one function
// for all of them.

#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "strategies/api/option_rules.h"
#include "strategies/api/strategy.h"
#include "strategies/placement/graph_dag.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {

inline constexpr OptionInfo place_on_option{
    .name = "devices",
    .default_value = "all",
    .values = "all or a whole number from 1 to 1024",
    .help = "on how many devices ops are placed, the platform's first ones",
    .allowed = [](std::string_view text) { return text == "all" || integer_between<1, 1024>(text); },
};

inline constexpr OptionInfo homes_option{
    .name = "parameters",
    .default_value = "together",
    .values = "together or copies",
    .help =
        "together: ops that use one parameter share a device; copies: they need not, and its gradients are summed over "
        "the devices at the end",
    .allowed = [](std::string_view text) { return text == "together" || text == "copies"; },
};

/// Of planners that only say where ops run.
inline constexpr OptionInfo queue_option{
    .name = "order",
    .default_value = "fifo",
    .values = "fifo or b_level",
    .help =
        "which of the ops that are ready a device takes: the one that became ready first, or the one with the longest "
        "path to the end",
    .allowed = [](std::string_view text) { return text == "fifo" || text == "b_level"; },
};

/// Of planners that make an order of their own.
inline constexpr OptionInfo own_queue_option{
    .name = "order",
    .default_value = "own",
    .values = "own, fifo or b_level",
    .help =
        "own: in the planner's order; else which of the ops that are ready a device takes: the one that became ready "
        "first, or the one with the longest path to the end",
    .allowed = [](std::string_view text) { return text == "own" || text == "fifo" || text == "b_level"; },
};

inline constexpr OptionInfo usable_option{
    .name = "usable",
    .default_value = "0.9",
    .values = "a number from 0.01 to 1",
    .help = "the share of a device's memory that the planner fills; the rest is for what it does not see",
    .allowed = number_between<1, 100, 100>,
};

/// What a planner makes of a graph and a machine; its memory is what it may fill.
using PlacementOutcome = std::variant<Placement, Infeasible>;
using PlacementPlanner = std::function<PlacementOutcome(const OpDag&, const Machine&)>;

/// The graph on the devices that the options name. Throws as graph_dag and devices_for.
GraphDag asked_graph(const Problem&, const Options&, std::string_view strategy);

/// As the option `devices` says. Throws InputError, which names the strategy, where the platform has fewer.
std::uint32_t devices_for(const Problem&, const Options&, std::string_view strategy);

/// Partitions for several budgets of each device. A planner that heeds memory has `usable_option` and is asked for each
/// budget; else once. Throws InputError where there is none for any budget.
std::vector<PartitionOutcome> placed(const Problem&, const Options&, std::string_view strategy,
                                     std::span<const std::optional<Bytes>> budgets, bool heeds_memory,
                                     const PlacementPlanner&);

}  // namespace plimsoll
