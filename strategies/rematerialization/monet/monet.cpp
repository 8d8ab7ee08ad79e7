// The strategy `monet`: which op runs again, and in which of its implementations each run is, chosen together.
// Source: Shah, Wu, Mohan, Chidambaram, Krähenbühl, "Memory Optimization for Deep Networks", ICLR 2021. There one
// integer program over stages of a network; here Checkmate's program with a choice of implementation for each run
// (checkmate_model.h), so that without alternatives it is Checkmate's.

#include <algorithm>
#include <set>
#include <unordered_map>

#include "strategies/api/solver_options.h"
#include "strategies/api/strategy.h"
#include "strategies/models/fullest_moment.h"
#include "strategies/rematerialization/cuts/articulation_points.h"
#include "strategies/rematerialization/policies/greedy_recompute.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"
#include "strategies/rematerialization/rockmate/rockmate_graph.h"

namespace plimsoll {
namespace {

struct MonetOptions : LimitOptions {
  std::size_t most_ops = 100;
};

/// One way to run a step of a plan.
struct Implementation {
  std::uint32_t number;
  Seconds time;
  Bytes needed;  ///< of the device, all counted
};

/// By run: its implementations. A workspace is there during one run only, so each can be chosen alone.
std::vector<std::vector<Implementation>> implementations(const OpModel& model, OpSequence sequence) {
  std::unordered_map<std::uint32_t, std::uint32_t> number;
  std::size_t most = 0;
  for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
    number[model.ops[o].id.index] = o;
    most = std::max(most, model.ops[o].alternatives.size());
  }
  std::vector<std::vector<Implementation>> all(sequence.size());
  for (std::uint32_t k = 0; k <= most; ++k) {
    for (OpRun& run : sequence) {
      run.implementation = k <= model.ops[number.at(run.op.index)].alternatives.size() ? k : 0;
    }
    const std::vector<MemoryOfRun> memory = memory_of_runs(model, sequence);
    for (std::size_t r = 0; r < sequence.size(); ++r) {
      if (k > 0 && sequence[r].implementation == 0) continue;
      const ModelOp& op = model.ops[number.at(sequence[r].op.index)];
      const Seconds own = sequence[r].saving == Saving::keep ? op.ways.front().time : op.ways.back().time;
      all[r].push_back({k, k == 0 ? own : op.alternatives[k - 1].time, memory[r].during});
    }
  }
  return all;
}

/// The plan with the fastest implementations within levels of memory from the least that they need to the most.
void add_levels(PlanPool& pool, const OpModel& model, const OpSequence& sequence) {
  const std::vector<std::vector<Implementation>> all = implementations(model, sequence);
  Bytes least;
  std::set<Bytes> needs;
  for (const std::vector<Implementation>& run : all) {
    least = std::max(least, std::ranges::min(run, {}, &Implementation::needed).needed);
    for (const Implementation& each : run) needs.insert(each.needed);
  }
  needs.insert(least);
  std::vector<Bytes> levels(needs.lower_bound(least), needs.end());
  constexpr std::size_t most_levels = 40;
  for (std::size_t k = 0; k < std::min(levels.size(), most_levels); ++k) {
    const Bytes level = levels.size() <= most_levels ? levels[k] : levels[k * (levels.size() - 1) / (most_levels - 1)];
    OpSequence chosen = sequence;
    for (std::size_t r = 0; r < chosen.size(); ++r) {
      Seconds fastest{std::numeric_limits<double>::infinity()};
      for (const Implementation& each : all[r]) {
        if (each.needed > level || each.time >= fastest) continue;
        fastest = each.time;
        chosen[r].implementation = each.number;
      }
    }
    pool.add(chosen);
  }
}

CheckmateSolver monet_solver(const PartTask& task, const MonetOptions& options) {
  const OpModel plain = op_model(task);
  OpModel model = with_alternatives(plain, task);
  PlanPool base(task);
  base.add(store_all_ops(task));
  add_greedy_segments(base, plain, Points::all);
  add_greedy_recompute(base, plain);
  block_sequences(plain, {}, [&](const OpSequence& sequence) { base.add(sequence); });
  PlanPool known(task);
  for (const Bytes peak : base.budgets()) {
    const OpSequence& sequence = base.at(peak)->sequence;
    known.add(sequence);
    add_levels(known, model, sequence);
  }
  const CheckmateEffort effort{.limits = {.seconds = static_cast<double>(options.time_limit), .nodes = options.nodes},
                               .most_ops = options.most_ops};
  return {task, std::move(model), effort, std::move(known)};
}

constexpr auto monet_options = options_of<MonetOptions>(
    time_limit_option, nodes_option,
    option_of<&MonetOptions::most_ops>({
        .name = "most_ops",
        .least = 0,
        .most = 1'000,
        .help = "largest number of ops for which the integer program is solved; larger graphs get the best plan of the "
                "heuristics",
    }));

std::vector<TapeOutcome> monet_tapes(const PartTask& task, const MonetOptions& options,
                                     std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  CheckmateSolver monet = monet_solver(task, options);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(monet.solve(budget));
  return outcomes;
}

std::vector<Bytes> monet_candidates(const PartTask& task, const MonetOptions& options) {
  return monet_solver(task, options).candidates();
}

}  // namespace

extern constinit const StrategyInfo monet_strategy{
    .name = "monet",
    .family = Family::rematerialization,
    .summary = "chooses recomputation and the implementation of every op together, by integer programming",
    .source = "Shah, Wu, Mohan, Chidambaram, Kraehenbuehl, 'Memory Optimization for Deep Networks', ICLR 2021",
    .options = monet_options,
    .kind = TapeStrategy{.tapes = by_options<monet_tapes>, .candidates = by_options<monet_candidates>},
    .effort = {.stages = 4, .ops = 12, .trials = {.problems = 30, .stride = 7, .stages = 3, .ops = 4}},
};

}  // namespace plimsoll
