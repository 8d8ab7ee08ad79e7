// The strategy `dtr`: dynamic tensor rematerialization (dtr_runtime.h) of a graph, run at every budget of a fixed
// ladder; the plan is the fastest of these runs that fits.

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/api/strategy.h"
#include "strategies/models/chain_pass.h"
#include "strategies/rematerialization/dtr/dtr_banishing.h"
#include "strategies/rematerialization/dtr/dtr_heuristic.h"
#include "strategies/rematerialization/dtr/dtr_part_log.h"
#include "strategies/rematerialization/dtr/dtr_runtime.h"

namespace plimsoll {
namespace {

struct DtrStrategyOptions {
  DtrHeuristic heuristic = DtrHeuristic::dtr;
  bool banishes = false;
  std::uint64_t seed = 0;
};

constexpr std::int64_t dtr_rungs = 40;
constexpr std::int64_t thrash_limit = 10;  // rematerialisation may take nine times the model's own time

/// What the largest call needs: below it no run succeeds.
Bytes largest_call(const OpLog& log) {
  Bytes largest;
  for (const LoggedCall& call : log.calls) {
    Bytes bytes = call.workspace;
    for (const TensorId t : call.results) bytes += log[t].bytes;
    largest = std::max(largest, bytes);
  }
  return largest;
}

/// The calls of a run as a tape. A forward whose inner tensors nobody reads before it runs again keeps nothing, and
/// every value dies after its last use before it is made anew: what DTR evicts later than that only took room.
Tape tape_of(const Graph& graph, const PartLog& part, const DtrRun& run) {
  Tape tape;
  std::vector<std::uint8_t> read_later(graph.tensors.size(), 0);
  for (std::size_t k = run.calls.size(); k-- > 0;) {
    const std::optional<OpId> id = part.op_of[run.calls[k].index];
    if (!id) continue;
    const Op& op = graph[*id];
    const bool keeps =
        op.saved.empty() || std::ranges::any_of(op.saved, [&](TensorId t) { return read_later[t.index]; });
    tape.actions.push_back(plimsoll::run(*id, keeps ? Saving::keep : Saving::nothing));
    for (const TensorId t : op.outputs) read_later[t.index] = 0;
    for (const TensorId t : op.inputs) read_later[t.index] = 1;
  }
  std::ranges::reverse(tape.actions);
  return with_drops(graph, std::move(tape));
}

/// Runs at equally spaced budgets from that of the run without a limit down to the largest call, each with the tape
/// that it leaves. DTR is not monotone; the best of a fixed set of runs is.
std::vector<PlannedTape> plans_on_ladder(const PartTask& task, const DtrStrategyOptions& options) {
  if (task.partition.parts.size() > 1 || task.in_flight > 1) {
    throw InputError("dtr: works on one device and the whole graph only");
  }
  const Part& part = task.part();
  const PartLog log = part_log(task.problem, part);
  DtrOptions run_options;
  run_options.heuristic = options.heuristic;
  const bool banishes = options.banishes;
  if (banishes && !can_banish(run_options.heuristic)) {
    throw InputError("dtr: release=banish works with heuristic=local, lru, size or random; found '" +
                     std::string(written(options.heuristic)) + "'");
  }
  const auto run_log = banishes ? run_dtr_banishing : run_dtr;
  run_options.seed = options.seed;
  run_options.rematerialization_limit = (thrash_limit - 1) * dtr_baseline(log.log).compute;
  std::vector<PlannedTape> plans;
  const auto add = [&](const DtrRun& run) {
    Tape tape = tape_of(task.problem.graph, log, run);
    const TapeCost cost = tape_cost(task.problem, part, tape);
    plans.push_back({std::move(tape), cost.peak, cost.makespan, std::nullopt});
  };
  const DtrRun free = run_log(log.log, run_options);
  EXPECTS(free.end == DtrEnd::finished);
  add(free);
  const Bytes least = largest_call(log.log);
  std::optional<Bytes> last;
  for (std::int64_t k = dtr_rungs; k-- > 0;) {
    const Bytes room = free.peak - least;
    run_options.budget = least + Bytes{room.count / dtr_rungs * k + room.count % dtr_rungs * k / dtr_rungs};
    if (run_options.budget == last) continue;
    last = run_options.budget;
    const DtrRun run = run_log(log.log, run_options);
    if (run.end == DtrEnd::finished) add(run);
  }
  return plans;
}

constexpr auto dtr_options = options_of<DtrStrategyOptions>(
    option_of<&DtrStrategyOptions::heuristic>({
        .name = "heuristic",
        .words = "dtr dtr_eq local lru size msps random",
        .help = "cost of evicting a tensor, as in the paper: dtr is h_DTR, dtr_eq its approximation by equivalence "
                "classes, local leaves the neighbours out",
    }),
    option_of<&DtrStrategyOptions::banishes>({
        .name = "release",
        .words = "evict banish",
        .help =
            "what happens to a tensor that is no longer referenced: evict: it may be recomputed; banish: it is gone "
            "for ever, and tensors computed from it are never evicted (only with heuristic=local, lru, size or random)",
    }),
    option_of<&DtrStrategyOptions::seed>({
        .name = "seed",
        .least = 0,
        .most = 1'000'000'000,
        .help = "seed of heuristic=random",
    }));

std::vector<TapeOutcome> dtr_tapes(const PartTask& task, const DtrStrategyOptions& options,
                                   std::span<const std::optional<Bytes>> budgets, const Tape*) {
  const std::vector<PlannedTape> plans = plans_on_ladder(task, options);
  const Bytes smallest = std::ranges::min_element(plans, {}, &PlannedTape::peak)->peak;
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    const PlannedTape* best = nullptr;
    for (const PlannedTape& plan : plans) {
      if (budget && plan.peak > *budget) continue;
      if (best == nullptr || plan.makespan < best->makespan) best = &plan;
    }
    if (best != nullptr) {
      outcomes.emplace_back(*best);
    } else {
      outcomes.emplace_back(Infeasible{"every run of dtr needs more memory", smallest});
    }
  }
  return outcomes;
}

std::vector<Bytes> dtr_candidates(const PartTask& task, const DtrStrategyOptions& options) {
  std::vector<Bytes> peaks;
  for (const PlannedTape& plan : plans_on_ladder(task, options)) peaks.push_back(plan.peak);
  std::ranges::sort(peaks);
  return peaks;
}

}  // namespace

extern constinit const StrategyInfo dtr_strategy{
    .name = "dtr",
    .family = Family::rematerialization,
    .summary =
        "dynamic tensor rematerialization: when room is needed, evicts the tensor that is cheapest by a heuristic, "
        "online",
    .source =
        "Kirisame, Lyubomirsky, Haan, Brennan, He, Roesch, Chen, Tatlock, 'Dynamic Tensor Rematerialization', 2021",
    .options = dtr_options,
    .kind = TapeStrategy{.tapes = by_options<dtr_tapes>, .candidates = by_options<dtr_candidates>},
    .effort = {.stages = 300, .ops = 5000},
};

}  // namespace plimsoll
