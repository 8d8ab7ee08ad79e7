#include "strategies/offloading/activations/offload_bound.h"

#include "sim/core/tolerance.h"
#include "strategies/api/front.h"

#include <algorithm>
#include <utility>

namespace plimsoll {
namespace {

/// One direction of time: what must have moved before a position, and when it could begin to.
struct Sweep {
  std::vector<Seconds> time;             // by position
  std::vector<Bytes> away;               // by position: at least; negative where nothing must be
  std::vector<std::vector<Bytes>> gaps;  // [q][p]: of values made by q those that can be away at p, by q alone
  BytesPerSecond bandwidth;
};

Sweep sweep_of(const OffloadModel& model, Bytes budget) {
  const std::size_t count = model.positions();
  Sweep sweep{model.time, {}, std::vector(count, std::vector<Bytes>(count)), model.out.bandwidth};
  for (const OffloadGap& gap : model.gaps) {
    for (std::uint32_t p = gap.from + 1; p < gap.until; ++p) sweep.gaps[gap.made][p] += gap.bytes;
  }
  for (const Bytes memory : model.memory) sweep.away.push_back(memory - budget);
  return sweep;
}

/// The same in time that runs backwards.
Sweep reversed_sweep_of(const OffloadModel& model, Bytes budget) {
  const std::size_t count = model.positions();
  Sweep sweep{model.time, {}, std::vector(count, std::vector<Bytes>(count)), model.in.bandwidth};
  for (const OffloadGap& gap : model.gaps) {
    for (std::uint32_t p = gap.from + 1; p < gap.until; ++p) {
      sweep.gaps[count - 1 - gap.until][count - 1 - p] += gap.bytes;
    }
  }
  for (const Bytes memory : model.memory) sweep.away.push_back(memory - budget);
  std::ranges::reverse(sweep.away);
  std::ranges::reverse(sweep.time);
  return sweep;
}

/// Whether no position needs more than all that can be away at it.
bool can_be_enough(const OffloadModel& model, Bytes budget) {
  std::vector<Bytes> needed = model.memory;
  for (const OffloadGap& gap : model.gaps) {
    for (std::uint32_t p = gap.from + 1; model.has_host && p < gap.until; ++p) needed[p] -= gap.bytes;
  }
  return std::ranges::all_of(needed, [&](Bytes bytes) { return bytes <= budget; });
}

/// The earliest start of every position.
std::vector<Seconds> earliest_starts(const Sweep& sweep) {
  const std::size_t count = sweep.time.size();
  std::vector<Seconds> starts(count);
  Seconds now;
  for (std::size_t p = 0; p < count; ++p) {
    Seconds start = now;
    Bytes left = sweep.away[p];
    for (std::size_t q = 0; q < p && left > Bytes{0}; ++q) {
      if (sweep.gaps[q][p] == Bytes{0}) continue;  // a later q gives more
      start = std::max(start, starts[q] + sweep.time[q] + left / sweep.bandwidth);
      left -= sweep.gaps[q][p];
    }
    starts[p] = start;
    now = start + sweep.time[p];
  }
  return starts;
}

/// Of one micro-batch and the updates: the first micro-batch of several needs less memory than the others.
std::optional<double> fluid_gap(const PartTask& task, const OffloadModel& model, std::optional<Bytes> budget,
                                Seconds makespan) {
  constexpr std::size_t most_positions = 500;  // beyond them its table is large
  if (model.positions() > most_positions || task.problem.micro_batches > 1) return std::nullopt;
  const std::optional<Seconds> once = fluid_bound(model, budget.value_or(largest_bytes));
  if (!once) return std::nullopt;
  return relative_gap(makespan, *once + updates(task));
}

/// `made` gives the outcomes of budgets.
template <class Made>
std::vector<PlannedTape> also_at_least(std::span<const std::optional<Bytes>> budgets, const Made& made) {
  std::vector<PlannedTape> tapes;
  std::optional<Bytes> smallest;
  const auto add = [&](std::span<const std::optional<Bytes>> limits) {
    for (TapeOutcome& outcome : made(limits)) {
      if (auto* tape = std::get_if<PlannedTape>(&outcome)) {
        tapes.push_back(std::move(*tape));
      } else {
        smallest = std::get<Infeasible>(outcome).smallest;
      }
    }
  };
  add(budgets);
  if (smallest) add(std::span(&smallest, 1));
  return tapes;
}

}  // namespace

std::optional<Seconds> fluid_bound(const OffloadModel& model, Bytes budget) {
  if (!can_be_enough(model, budget)) return std::nullopt;
  const std::vector<Seconds> starts = earliest_starts(sweep_of(model, budget)), rests = fluid_rests(model, budget);
  Seconds bound;
  for (std::size_t p = 0; p < model.positions(); ++p) bound = std::max(bound, starts[p] + rests[p]);
  return bound;
}

std::vector<Seconds> fluid_rests(const OffloadModel& model, Bytes budget) {
  std::vector<Seconds> rests = earliest_starts(reversed_sweep_of(model, budget));
  std::ranges::reverse(rests);
  for (std::size_t p = 0; p < rests.size(); ++p) rests[p] = rests[p] + model.time[p];
  rests.emplace_back();
  return rests;
}

Seconds updates(const PartTask& task) {
  const DeviceId device = task.part().device;
  Seconds sum;
  for (std::size_t o = 0; o < task.problem.graph.ops.size(); ++o) {
    if (task.problem.graph.ops[o].phase == Phase::update) {
      sum += duration_on(task.problem, id_at<OpId>(o), device, Saving::keep);
    }
  }
  return sum;
}

std::vector<TapeOutcome> with_fluid_gaps(const PartTask& task, const OffloadModel& model,
                                         std::span<const std::optional<Bytes>> budgets,
                                         std::vector<TapeOutcome> outcomes) {
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    PlannedTape* tape = std::get_if<PlannedTape>(&outcomes[b]);
    if (tape != nullptr) tape->gap = fluid_gap(task, model, budgets[b], tape->makespan);
  }
  return outcomes;
}

std::vector<PlannedTape> known_tapes(std::span<const Pass> passes, const PartTask& task,
                                     std::span<const std::optional<Bytes>> budgets) {
  return also_at_least(
      budgets, [&](std::span<const std::optional<Bytes>> limits) { return tapes_of_passes(task, passes, limits); });
}

std::vector<PlannedTape> known_tapes(const Pass& pass, const PartTask& task,
                                     std::span<const std::optional<Bytes>> budgets, const Tape& before) {
  return also_at_least(budgets, [&](std::span<const std::optional<Bytes>> limits) {
    return pass.strategy->tapes(task, pass.options, limits, &before);
  });
}

}  // namespace plimsoll
