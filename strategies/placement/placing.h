#pragma once
// From a problem to what planners of placements see, and from their answer to a partition: options, and one function
// for all of them.

#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "strategies/api/strategy.h"
#include "strategies/placement/graph_dag.h"
#include "strategies/placement/op_dag.h"

namespace plimsoll {

/// In which order a device takes its ops.
enum class AskedOrder : std::uint8_t { fifo, b_level, own };

/// Options that placements share: each has the rows of those that it heeds in its table.
struct PlacingOptions {
  std::optional<std::uint32_t> devices;  ///< unset: all
  bool copies = false;                   ///< of parameters on the devices of the ops that use them
  AskedOrder order = AskedOrder::fifo;
  double usable = 0.9;  ///< share of a device's memory
};

/// Of planners that make an order of their own.
struct OwnOrderOptions : PlacingOptions {
  OwnOrderOptions() { order = AskedOrder::own; }
};

inline constexpr auto place_on_option = option_of<&PlacingOptions::devices>({
    .name = "devices",
    .least = 1,
    .most = 1024,
    .none = "all",
    .help = "on how many devices ops are placed, the platform's first ones",
});

inline constexpr auto homes_option = option_of<&PlacingOptions::copies>({
    .name = "parameters",
    .words = "together copies",
    .help =
        "together: ops that use one parameter share a device; copies: they need not, and its gradients are summed over "
        "the devices at the end",
});

/// Of planners that only say where ops run.
inline constexpr auto queue_option = option_of<&PlacingOptions::order>({
    .name = "order",
    .words = "fifo b_level",
    .help =
        "which of the ops that are ready a device takes: the one that became ready first, or the one with the longest "
        "path to the end",
});

/// Of planners that make an order of their own.
inline constexpr auto own_queue_option = option_of<&PlacingOptions::order>({
    .name = "order",
    .words = "fifo b_level own",
    .values = "own, fifo or b_level",
    .help =
        "own: in the planner's order; else which of the ops that are ready a device takes: the one that became ready "
        "first, or the one with the longest path to the end",
});

inline constexpr auto usable_option = option_of<&PlacingOptions::usable>({
    .name = "usable",
    .least = 0.01,
    .most = 1,
    .help = "share of a device's memory that the planner fills; the rest is for memory that the planner does not model",
});

/// What a planner makes of a graph and a machine; its memory is what it may fill.
using PlacementOutcome = std::variant<Placement, Infeasible>;
using PlacementPlanner = std::function<PlacementOutcome(const OpDag&, const Machine&)>;

/// The graph on the devices that the options name. Throws as graph_dag and devices_for.
GraphDag asked_graph(const Problem&, const PlacingOptions&, std::string_view strategy);

/// As the option `devices` says. Throws InputError, which names the strategy, where the platform has fewer.
std::uint32_t devices_for(const Problem&, const PlacingOptions&, std::string_view strategy);

/// Partitions for several budgets of each device. A planner that heeds memory has `usable_option` and is asked for each
/// budget; else once. Throws InputError where there is none for any budget.
std::vector<PartitionOutcome> placed(const Problem&, const PlacingOptions&, std::string_view strategy,
                                     std::span<const std::optional<Bytes>> budgets, bool heeds_memory,
                                     const PlacementPlanner&);

template <const StrategyInfo& strategy, auto planner, class Struct, bool heeds_memory>
std::vector<PartitionOutcome> placed_as(const Problem& problem, const Struct& options,
                                        std::span<const std::optional<Bytes>> budgets) {
  return placed(problem, options, strategy.name, budgets, heeds_memory, planner);
}

/// What a strategy does whose planner needs no options of its own.
template <const StrategyInfo& strategy, auto planner, class Struct = PlacingOptions>
inline constexpr PartitionStrategy placed_by{.partition = by_options<placed_as<strategy, planner, Struct, false>>};

/// The same of a planner that heeds memory: it has `usable_option`.
template <const StrategyInfo& strategy, auto planner, class Struct = PlacingOptions>
inline constexpr PartitionStrategy placed_within{.partition = by_options<placed_as<strategy, planner, Struct, true>>};

/// The options of a planner that only says where ops run.
inline constexpr auto placing_options = options_of<PlacingOptions>(place_on_option, homes_option, queue_option);

/// The same of one that heeds memory.
inline constexpr auto filling_options =
    options_of<PlacingOptions>(place_on_option, homes_option, queue_option, usable_option);

}  // namespace plimsoll
