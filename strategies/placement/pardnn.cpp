#include "strategies/placement/pardnn.h"

#include <algorithm>
#include <array>

#include "strategies/placement/pardnn_mapping.h"
#include "strategies/placement/pardnn_memory.h"
#include "strategies/placement/pardnn_refine.h"

namespace plimsoll {
namespace {

constexpr OptionInfo pardnn_memory_option{
    .name = "memory",
    .default_value = "1",
    .values = "none or 1",
    .help = "none: memory is not looked at; 1: what does not fit in an emulation moves, or nothing is placed",
    .allowed = [](std::string_view text) { return text == "none" || text == "1"; },
};

constexpr OptionInfo refine_option{
    .name = "refine",
    .default_value = "none",
    .values = "none or v1",
    .help =
        "none: paths stay where they are mapped; v1: before memory is looked at, paths and ops change devices where an "
        "emulation then ends earlier, as in ParDNN's first version",
    .allowed = [](std::string_view text) { return text == "none" || text == "v1"; },
};

constexpr std::array pardnn_options{place_on_option, homes_option,         queue_option,
                                    usable_option,   pardnn_memory_option, refine_option};

std::vector<PartitionOutcome> pardnn_partition(const Problem& problem, const Options& options,
                                               std::span<const std::optional<Bytes>> budgets) {
  const PardnnOptions asked{.heeds_memory = options.text("memory") == "1",
                            .refines = options.text("refine") == "v1",
                            .order = *queue_order(options.text("order"))};
  return placed(problem, options, "pardnn", budgets, asked.heeds_memory,
                [&](const OpDag& dag, const Machine& machine) { return place_pardnn(dag, machine, asked); });
}

/// The largest limit of the field, raised to this.
Machine with_limit(Machine machine, const Units& units, std::int64_t limit) {
  std::int64_t most = 0;
  for (const std::uint32_t p : units.field) most = std::max(most, machine.memory[p]);
  for (const std::uint32_t p : units.field) {
    if (machine.memory[p] == most) machine.memory[p] = std::max(most, limit);
  }
  return machine;
}

/// A limit that is enough: what was reached, if it is reached again with it as the limit, else what is needed if
/// nothing moves.
std::optional<Bytes> limit_that_is_enough(const OpDag& dag, const Machine& machine, const PardnnMapping& mapping,
                                          QueueOrder order, std::int64_t reached) {
  constexpr int most_trials = 3;
  const auto fits = [&](std::int64_t limit) {
    const Relieved again = relieved(dag, with_limit(machine, mapping.units, limit), mapping.units, mapping.on, order);
    reached = std::max(again.reached, limit + 1);
    return again.fits;
  };
  for (int trial = 0; trial < most_trials; ++trial) {
    const std::int64_t limit = reached;
    if (fits(limit)) return Bytes{limit};
  }
  const Emulation times = emulate(dag, machine, mapping.on, order);
  const std::int64_t most = std::ranges::max(memory_of(dag, machine, mapping.on, times));
  if (fits(most)) return Bytes{most};
  return std::nullopt;
}

}  // namespace

PlacementOutcome place_pardnn(const OpDag& dag, const Machine& machine, const PardnnOptions& options) {
  auto units = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&units)) return std::move(*none);
  PardnnMapping mapping = pardnn_mapping(dag, machine, std::move(std::get<Units>(units)));
  collocate(dag, machine, mapping.units, mapping.on);
  if (options.refines) mapping.on = refined(dag, machine, mapping, options.order);
  if (!options.heeds_memory) return Placement{mapping.on, {}};
  Relieved made = relieved(dag, machine, mapping.units, mapping.on, options.order);
  if (made.fits) return Placement{std::move(made.on), {}};
  return Infeasible{.reason = "ops that may move do not relieve the devices whose memory overflows",
                    .smallest = limit_that_is_enough(dag, machine, mapping, options.order, made.reached),
                    .smallest_is_proven = false};
}

extern constinit const StrategyInfo pardnn_strategy{
    .name = "pardnn",
    .family = Family::placement,
    .summary = "critical paths to devices, other paths by locality and load; what overflows memory moves",
    .source =
        "Qararyah et al., 'A computational-graph partitioning method for training memory-constrained DNNs', Parallel "
        "Computing 2021",
    .chains_only = false,
    .options = pardnn_options,
    .tapes = nullptr,
    .candidates = nullptr,
    .partition = pardnn_partition,
};

}  // namespace plimsoll
