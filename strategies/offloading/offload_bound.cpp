#include "strategies/offloading/offload_bound.h"

#include <algorithm>

namespace plimsoll {
namespace {

/// One direction of time: what must have moved before a position, and when it could begin to.
struct Sweep {
  std::vector<Seconds> time;             // by position
  std::vector<Bytes> away;               // by position: at least; negative where nothing must be
  std::vector<std::vector<Bytes>> gaps;  // [q][p]: of values made by q those that can be away at p, by q alone
  BytesPerSecond bandwidth;
};

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
  const Seconds bound = *once + updates(task);
  if (bound <= Seconds{0}) return makespan <= Seconds{0} ? std::optional(0.0) : std::nullopt;
  const double gap = makespan / bound - 1;
  return gap <= 1e-12 ? 0.0 : gap;
}

}  // namespace

std::optional<Seconds> fluid_bound(const OffloadModel& model, Bytes budget) {
  const std::size_t count = model.positions();
  Sweep forwards{model.time, {}, {}, model.out.bandwidth}, backwards{model.time, {}, {}, model.in.bandwidth};
  forwards.gaps.assign(count, std::vector<Bytes>(count));
  backwards.gaps = forwards.gaps;
  std::vector<Bytes> available(count);
  for (const OffloadGap& gap : model.gaps) {
    for (std::uint32_t p = gap.from + 1; p < gap.until; ++p) {
      available[p] += gap.bytes;
      forwards.gaps[gap.made][p] += gap.bytes;
      backwards.gaps[count - 1 - gap.until][count - 1 - p] += gap.bytes;
    }
  }
  for (std::size_t p = 0; p < count; ++p) {
    const Bytes away = model.memory[p] - budget;
    if (away > Bytes{0} && (!model.has_host || away > available[p])) return std::nullopt;
    forwards.away.push_back(away);
  }
  backwards.away.assign(forwards.away.rbegin(), forwards.away.rend());
  std::ranges::reverse(backwards.time);
  const std::vector<Seconds> starts = earliest_starts(forwards), rests = earliest_starts(backwards);
  Seconds bound;
  for (std::size_t p = 0; p < count; ++p) bound = std::max(bound, starts[p] + model.time[p] + rests[count - 1 - p]);
  return bound;
}

Seconds updates(const PartTask& task) {
  const DeviceId device = task.partition.parts[task.part.index].device;
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

}  // namespace plimsoll
