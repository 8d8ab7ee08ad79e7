#include "strategies/placement/pardnn/pardnn.h"

#include <algorithm>

#include "strategies/placement/pardnn/pardnn_balance.h"
#include "strategies/placement/pardnn/pardnn_groups.h"
#include "strategies/placement/pardnn/pardnn_mapping.h"
#include "strategies/placement/pardnn/pardnn_memory.h"
#include "strategies/placement/pardnn/pardnn_refine.h"

namespace plimsoll {
namespace {

struct PardnnChoice : PlacingOptions {
  PardnnMemory memory = PardnnMemory::moves;
  bool refines = false;
};

constexpr auto pardnn_options = options_of<PardnnChoice>(
    place_on_option, homes_option, queue_option, usable_option,
    option_of<&PardnnChoice::memory>({.name = "memory",
                                      .words = "none 1 2",
                                      .help = "none: memory is not looked at; 1: what does not fit in an emulation "
                                              "moves; 2: the longest path is split and "
                                              "parameters are balanced before it is emulated; where the emulation then "
                                              "does not fit, nothing is placed"}),
    option_of<&PardnnChoice::refines>({.name = "refine",
                                       .words = "none v1",
                                       .help = "none: paths stay where they are mapped; v1: before memory is looked "
                                               "at, paths and ops change devices where an "
                                               "emulation then ends earlier, as in ParDNN's first version"}));

std::vector<PartitionOutcome> pardnn_partition(const Problem& problem, const PardnnChoice& options,
                                               std::span<const std::optional<Bytes>> budgets) {
  const PardnnOptions asked{.memory = options.memory,
                            .refines = options.refines,
                            .order = options.order == AskedOrder::fifo ? QueueOrder::fifo : QueueOrder::b_level};
  return placed(problem, options, "pardnn", budgets, asked.memory != PardnnMemory::ignored,
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

/// How long the processor that sends or receives most does so, if it has one link for all others.
Nanoseconds longest_port(const OpDag& dag, const Machine& machine, std::span<const std::uint32_t> on) {
  std::vector<Nanoseconds> sends(machine.size(), 0), receives(machine.size(), 0);
  std::vector<std::uint32_t> there;
  for (const DagValue& value : dag.values) {
    if (value.maker == no_node) continue;
    there.clear();
    for (const std::uint32_t r : value.readers) there.push_back(on[r]);
    std::ranges::sort(there);
    there.erase(std::unique(there.begin(), there.end()), there.end());
    const std::uint32_t from = on[value.maker];
    for (const std::uint32_t p : there) {
      const Nanoseconds time = machine.transfer(from, p, value.bytes) - machine.transfer(from, p, 0);
      sends[from] += time;
      receives[p] += time;
    }
  }
  return std::max(std::ranges::max(sends), std::ranges::max(receives));
}

/// The better of two: groups come together after paths have been mapped, as in the paper; or they are placed by loads,
/// and other nodes where they exchange most. By the end of the emulation, which knows nothing of transfers that wait
/// for each other, and the time that one processor's transfers take.
PardnnMapping mapped(const OpDag& dag, const Machine& machine, const Units& units, LongestPath longest,
                     QueueOrder order) {
  PardnnMapping made = pardnn_mapping(dag, machine, units, longest);
  collocate(dag, machine, units, made.on);
  if (units.field.size() < 2) return made;
  const std::optional<std::vector<std::uint32_t>> near = near_groups(dag, machine, units);
  if (!near) return made;
  std::vector<std::uint32_t> other = made.on;
  for (std::uint32_t v = 0; v < dag.size; ++v) {
    if (units.is_free[units.of[v]]) other[v] = (*near)[v];
  }
  const auto score = [&](std::span<const std::uint32_t> on) {
    return emulate(dag, machine, on, order).makespan + longest_port(dag, machine, on);
  };
  if (score(other) < score(made.on)) made.on = std::move(other);
  return made;
}

/// With parameters balanced, if what the emulation then needs is there; all depends on limits only by where there are
/// none, so what it needs is enough.
PlacementOutcome balanced(const OpDag& dag, const Machine& machine, const PardnnMapping& mapping, QueueOrder order) {
  std::vector<std::uint32_t> on = with_balanced_residents(dag, mapping.units, mapping.on);
  const std::vector<std::int64_t> peaks = memory_of(dag, machine, on, emulate(dag, machine, on, order));
  std::int64_t most = 0;
  bool fits = true, fits_beyond = true;  // beyond: off the field
  for (std::uint32_t p = 0; p < machine.size(); ++p) {
    const bool is_within = peaks[p] <= machine.memory[p];
    fits = fits && is_within;
    if (std::ranges::binary_search(mapping.units.field, p)) {
      most = std::max(most, peaks[p]);
    } else {
      fits_beyond = fits_beyond && is_within;
    }
  }
  if (fits) return Placement{std::move(on), {}};
  return Infeasible{.reason = "with parameters balanced, memory still overflows in the emulation",
                    .smallest = fits_beyond ? std::optional(Bytes{most}) : std::nullopt,
                    .smallest_is_proven = false};
}

}  // namespace

PlacementOutcome place_pardnn(const OpDag& dag, const Machine& machine, const PardnnOptions& options) {
  auto units = units_of(dag, machine);
  if (Infeasible* none = std::get_if<Infeasible>(&units)) return std::move(*none);
  const bool balances = options.memory == PardnnMemory::balance;
  PardnnMapping mapping =
      mapped(dag, machine, std::get<Units>(units), balances ? LongestPath::split : LongestPath::whole, options.order);
  if (options.refines) mapping.on = refined(dag, machine, mapping, options.order);
  if (options.memory == PardnnMemory::ignored) return Placement{mapping.on, {}};
  if (balances) return balanced(dag, machine, mapping, options.order);
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
    .partition = by_options<pardnn_partition>,
};

}  // namespace plimsoll
