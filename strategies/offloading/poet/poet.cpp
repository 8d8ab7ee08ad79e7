// The strategy `poet`: recomputation and paging of a graph's values chosen together, by integer programming on small
// graphs (strategies/rematerialization/programs/checkmate_model.cpp) and by heuristics on large ones.
// Source: Patil et al., "POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and Paging",
// ICML 2022.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sim/core/tolerance.h"
#include "strategies/api/front.h"
#include "strategies/api/solver_options.h"
#include "strategies/api/strategy.h"
#include "strategies/list.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/rematerialization/programs/checkmate_model.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"

namespace plimsoll {
namespace {

struct PoetOptions : ChunkOptions, LimitOptions {
  bool of_energy = false;
  std::int64_t power = 0;
  std::int64_t transfer_energy = 0;
  std::int64_t deadline = 0;
  std::size_t ops = 24;
};

constexpr Bytes no_poet_limit{std::numeric_limits<std::int64_t>::max() / 4};
constexpr int mixed_levels = 4;  // budgets of greedy_recompute whose tapes are offloaded from

struct PricedTape {
  PlannedTape tape;
  double price;  // seconds, or joules
};

class PoetPlanner {
 public:
  PoetPlanner(const PartTask& task, const PoetOptions& options, const OffloadModel& plain)
      : task_(task),
        plain_(plain),
        model_(op_model(task)),
        energy_(options.of_energy),
        watts_(static_cast<double>(options.power)),
        joules_per_byte_(1e-12 * static_cast<double>(options.transfer_energy)),
        chunks_(options.chunks),
        most_ops_(options.ops),
        limits_{.seconds = static_cast<double>(options.time_limit), .nodes = options.nodes} {
    const PlannedTape all = planned_ops(task, store_all_ops(task));
    const std::int64_t percent = options.deadline;
    if (percent > 0) deadline_ = static_cast<double>(percent) / 100 * all.makespan;
    after_ = updates(task);
    work_ = all.makespan - after_;
  }

  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets) {
    find_known(budgets);
    std::vector<Asked> asked;
    for (const std::optional<Bytes>& budget : budgets) asked.push_back(ask(budget.value_or(no_poet_limit)));
    std::vector<TapeOutcome> outcomes;
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      outcomes.push_back(cheapest_within(budgets[b].value_or(no_poet_limit), asked[b]));
    }
    return outcomes;
  }

 private:
  /// What the integer program says of a budget.
  struct Asked {
    std::optional<double> bound = {};  ///< the least price of its class, as far as it is proven
    std::string stopped = {};          ///< by which limit, if by one
  };

  double repeats() const { return static_cast<double>(task_.problem.micro_batches); }

  void add(PlannedTape tape) {
    if (deadline_ && tape.makespan > *deadline_) return;
    const double price = energy_ ? joules(tape.tape) : tape.makespan.value;
    known_.push_back({std::move(tape), price});
  }

  /// Of the runs and copies of all micro-batches.
  double joules(const Tape& tape) const {
    const DeviceId device = task_.part().device;
    double joules = 0;
    for (const Action& action : tape.actions) {
      if (action.kind == ActionKind::run) {
        joules += watts_ * duration_on(task_.problem, action.op, device, action.saving, action.implementation).value;
      } else if (action.kind == ActionKind::copy || action.kind == ActionKind::move) {
        const Bytes moved = range_of(task_.problem.graph[action.tensor].bytes, action.chunk).length;
        joules += joules_per_byte_ * static_cast<double>(moved.count);
      }
    }
    return repeats() * joules;
  }

  /// Heuristics that only recompute, only offload, and offload from what recomputes.
  void find_known(std::span<const std::optional<Bytes>> budgets) {
    const Pass recompute = pass_of(greedy_recompute_strategy), offload = pass_of(offload_greedy_strategy);
    for (const Pass& pass : {pass_of(store_all_strategy), recompute, offload, pass_of(capuchin_strategy)}) {
      for (PlannedTape& tape : known_tapes(std::span(&pass, 1), task_, budgets)) add(std::move(tape));
    }
    const Bytes most = *std::ranges::max_element(plain_.memory);
    std::vector<std::optional<Bytes>> levels;
    for (int k = 1; k <= mixed_levels; ++k) levels.emplace_back(Bytes{most.count / (mixed_levels + 1) * k});
    for (const PlannedTape& recomputing : known_tapes(std::span(&recompute, 1), task_, levels)) {
      for (PlannedTape& tape : known_tapes(offload, task_, budgets, recomputing.tape)) add(std::move(tape));
    }
  }

  const PricedTape* cheapest(Bytes budget) const {
    const PricedTape* best = nullptr;
    for (const PricedTape& known : known_) {
      if (known.tape.peak <= budget && (best == nullptr || known.price < best->price)) best = &known;
    }
    return best;
  }

  TapeOutcome cheapest_within(Bytes budget, const Asked& asked) const {
    const PricedTape* best = cheapest(budget);
    if (best != nullptr) {
      PlannedTape tape = best->tape;
      tape.gap = std::nullopt;
      tape.note = asked.stopped;
      if (asked.bound) tape.gap = std::max(0.0, best->price / *asked.bound - 1);
      return tape;
    }
    if (known_.empty()) return Infeasible{"no plan keeps the deadline", std::nullopt};
    const auto least = std::ranges::min_element(known_, {}, [](const PricedTape& k) { return k.tape.peak; });
    return Infeasible{"no recomputation and paging was found that fits", least->tape.peak};
  }

  /// Adds what the integer program finds.
  Asked ask(Bytes budget) {
    const double least = energy_ ? watts_ * work_.value : (work_ + after_).value;
    const PricedTape* known = cheapest(budget);
    if (known != nullptr && reaches(known->price, least)) return {least};
    if (!plain_.has_host) return {};
    if (model_.ops.size() > most_ops_) {
      return {{}, fmt::format("no integer program: {} ops, more than ops={}", model_.ops.size(), most_ops_)};
    }
    Paging paging{.latency_out = plain_.out.latency,
                  .latency_in = plain_.in.latency,
                  .seconds_per_byte_out = 1 / plain_.out.bandwidth.value,
                  .seconds_per_byte_in = 1 / plain_.in.bandwidth.value};
    if (energy_) paging.seconds_of_energy_per_byte = joules_per_byte_ / watts_;
    if (deadline_) paging.deadline = 1 / repeats() * (*deadline_ - after_);
    const CheckmateModel program(model_, budget, Formulation::tight, paging);
    if (!program.is_complete()) {
      return {{},
              fmt::format("no integer program: that of {} ops has more than {} nonzeros", model_.ops.size(),
                          most_nonzeros)};
    }
    const MilpResult found = solve_milp(program.program(), {}, limits_);
    if (!found.values.empty()) add_solution(program, found.values, budget);
    if (found.end == MilpResult::End::infeasible) return {};
    const double bound = repeats() * program.seconds(found.bound).value;
    return {energy_ ? std::max(least, watts_ * bound) : std::max(least, bound + after_.value),
            why_stopped(found.end, limits_)};
  }

  void add_solution(const CheckmateModel& program, const std::vector<double>& solution, Bytes budget) {
    const OpSequence sequence = program.plan(solution);
    if (!is_runnable(model_, sequence)) return;
    const Tape tape = tape_of_ops(task_.problem.graph, sequence);
    const std::variant<OffloadModel, std::string> made = offload_model(task_, &tape);
    const auto& model = std::get<OffloadModel>(made);
    std::vector<std::size_t> stages;  // by position
    std::size_t stage = 0;
    for (const Action& compute : model.computes) {
      stages.push_back(stage);
      if (model_.ops[stage].id == compute.op) ++stage;
    }
    std::vector<bool> chosen(model.gaps.size(), false);
    for (const PagedIn& in : program.paged_in(solution)) {
      for (std::uint32_t g = 0; g < model.gaps.size(); ++g) {
        const OffloadGap& gap = model.gaps[g];
        const bool spans = stages[gap.from] <= in.stage && in.stage < stages[gap.until];
        if (spans && gap.tensor == model_.values[in.value].tensor) chosen[g] = true;
      }
    }
    for (const std::uint32_t chunks : {1U, chunks_}) {
      if (const std::optional<PlacedCopies> placed = place_chosen(model, chosen, chunks, budget)) {
        if (std::optional<PlannedTape> planned = planned_moves(task_, model, placed->moves)) add(std::move(*planned));
      }
    }
  }

  const PartTask& task_;
  const OffloadModel& plain_;
  OpModel model_;
  bool energy_;
  double watts_, joules_per_byte_;
  std::uint32_t chunks_;
  std::size_t most_ops_;
  MilpLimits limits_;
  std::optional<Seconds> deadline_;
  Seconds after_, work_;  // updates, and plain training without them
  std::vector<PricedTape> known_;
};

constexpr auto poet_options = options_of<PoetOptions>(
    option_of<&PoetOptions::of_energy>({
        .name = "objective",
        .words = "time energy",
        .help = "what the plan minimizes; energy needs `power`",
    }),
    option_of<&PoetOptions::power>({
        .name = "power",
        .least = 0,
        .most = 100'000,
        .values = "a whole number of watts from 0 to 100000",
        .help = "power of the device while it computes; 0: unknown",
    }),
    option_of<&PoetOptions::transfer_energy>({
        .name = "transfer_energy",
        .least = 0,
        .most = 1'000'000'000,
        .values = "a whole number of picojoules a byte from 0 to 1000000000",
        .help = "energy of copying one byte between device and host",
    }),
    option_of<&PoetOptions::deadline>({
        .name = "deadline",
        .least = 0,
        .most = 100'000,
        .values = "a whole number of percent from 0 to 100000",
        .help = "longest iteration time, as a percentage of plain training's; 0: no deadline",
    }),
    option_of<&PoetOptions::ops>({
        .name = "ops",
        .least = 0,
        .most = 1000,
        .help = "largest number of ops for which the integer program is solved; larger graphs get the heuristics only",
    }),
    copy_chunks_option, time_limit_option, nodes_option);

std::vector<TapeOutcome> poet_tapes(const PartTask& task, const PoetOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  if (before != nullptr) return refused("poet chooses recomputation and paging together, itself", budgets);
  if (options.of_energy && options.power == 0) {
    return refused("objective=energy needs power=WATTS, the power of the device while it computes", budgets);
  }
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  const std::variant<OffloadModel, std::string> plain = offload_model(task, nullptr);
  if (const std::string* why = std::get_if<std::string>(&plain)) return refused(*why, budgets);
  return PoetPlanner(task, options, std::get<OffloadModel>(plain)).outcomes(budgets);
}

/// What the heuristics need over their range: the program's plans are simulated, and faster than it says.
std::vector<Bytes> poet_candidates(const PartTask& task, const PoetOptions& options) {
  PoetOptions without_program = options;
  without_program.ops = 0;
  constexpr std::uint32_t levels = 16;
  const auto asked = [&](std::span<const std::optional<Bytes>> budgets) {
    return poet_tapes(task, without_program, budgets, nullptr);
  };
  std::vector<Bytes> budgets;
  for (const PlannedTape& tape : asked_over_range(asked, levels).tapes) budgets.push_back(tape.peak);
  return budgets;
}

}  // namespace

extern constinit const StrategyInfo poet_strategy{
    .name = "poet",
    .family = Family::offloading,
    .summary = "chooses recomputation and paging of a graph together, by integer programming, for least time or energy",
    .source =
        "Patil et al., \"POET: Training Neural Networks on Tiny Devices with Integrated Rematerialization and "
        "Paging\", ICML 2022",
    .options = poet_options,
    .kind = TapeStrategy{.tapes = by_options<poet_tapes>, .candidates = by_options<poet_candidates>},
    .effort = {.stages = 3, .ops = 9, .trials = {.problems = 20, .stride = 9, .stages = 2, .ops = 3}},
};

}  // namespace plimsoll
