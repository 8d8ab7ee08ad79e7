// Our own searches for all budgets at once: `offload_greedy`, `offload_fractional` and `offload_dp`.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include "sim/core/tolerance.h"
#include "strategies/api/front.h"
#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_model.h"
#include "strategies/offloading/activations/offload_moves.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_selection.h"

namespace plimsoll {
namespace {

/// What a simulated tape has moved.
struct SimulatedMoves {
  std::vector<OffloadMove> moves;
  Bytes peak;
  Seconds makespan;
};
using FrontOfMoves = FrontOf<SimulatedMoves>;

/// Unless the host has too little memory for it.
void add_simulated(FrontOfMoves& front, const PartTask& task, const OffloadModel& model,
                   std::vector<OffloadMove> moves) {
  const std::optional<PlannedTape> made = planned_moves(task, model, moves);
  if (made) front.add({std::move(moves), made->peak, made->makespan});
}

/// A model and what was planned for it.
struct OffloadPlans {
  OffloadModel model;
  FrontOfMoves front;

  std::vector<TapeOutcome> outcomes(const PartTask& task, std::span<const std::optional<Bytes>> budgets) const {
    const auto tape_of = [&](const SimulatedMoves& plan) {
      return PlannedTape{offload_tape(model, plan.moves), plan.peak, plan.makespan, std::nullopt};
    };
    return with_fluid_gaps(task, model, budgets,
                           front.outcomes(budgets, "no more than this can be offloaded", tape_of));
  }
};

/// The kind of a strategy that plans the same whatever the budget; its answers have their gap to the fluid bound.
template <class Struct, FrontOfMoves (*plans)(const PartTask&, const Struct&, const OffloadModel&)>
constexpr TapeStrategy planned_with_gaps() {
  TapeStrategy kind{};
  kind.asked = [](const PartTask& task, const Options& given, const Tape* before) -> Asked {
    const Struct& options = given.as<Struct>();
    std::variant<OffloadModel, std::string> made = offload_model(task, before, offload_store(task, options));
    if (const std::string* why = std::get_if<std::string>(&made)) {
      return [why = *why](std::span<const std::optional<Bytes>> budgets) { return refused(why, budgets); };
    }
    const auto all = std::make_shared<OffloadPlans>(OffloadPlans{std::get<OffloadModel>(std::move(made)), {}});
    all->front = plans(task, options, all->model);
    return [&task, all](std::span<const std::optional<Bytes>> budgets) { return all->outcomes(task, budgets); };
  };
  kind.tapes = [](const PartTask& task, const Options& given, std::span<const std::optional<Bytes>> budgets,
                  const Tape* before) {
    return planned_with_gaps<Struct, plans>().asked(task, given, before)(budgets);
  };
  kind.candidates = [](const PartTask& task, const Options& given) {
    const Struct& options = given.as<Struct>();
    const std::variant<OffloadModel, std::string> made = offload_model(task, nullptr, offload_store(task, options));
    const OffloadModel* model = std::get_if<OffloadModel>(&made);
    return model == nullptr ? std::vector<Bytes>{} : plans(task, options, *model).budgets();
  };
  return kind;
}

constexpr std::size_t fewest_levels = 24;  // of tapes of any length
constexpr std::array all_rules{SelectionRule::bytes_per_exposed, SelectionRule::free_time, SelectionRule::first_made};

/// The fastest placement within a budget, by the estimate.
std::optional<PlacedCopies> best_placement(const OffloadModel& model, std::span<const Selection> selections,
                                           Bytes budget) {
  std::optional<PlacedCopies> best;
  for (const Selection& selection : selections) {
    const std::optional<std::size_t> needed = selection.needed(budget);
    if (!needed) continue;
    keep_faster(best, placed_items(model, std::span(selection.items).first(*needed), budget));
  }
  return best;
}

/// A placement at a level of memory, and what it takes at least.
struct PlacedLevel {
  Bytes level;
  PlacedCopies placement;
  std::optional<PlannedTape> plan = {};  ///< once simulated; nothing where the host has too little memory
  bool simulated = false;
};

/// Chunks leave room sooner; whole values are fewer copies, each with its latency. Levels are the same for every
/// budget, so that more memory is never slower; for a budget those up to it are tried in the order of the time that
/// they take if nobody shares the links, as long as that may be the fastest.
class OffloadPlanner {
 public:
  OffloadPlanner(const PartTask& task, const OffloadModel& model, const OffloadOptions& options,
                 std::optional<Bytes> most)
      : task_(task), model_(model) {
    const Bytes full = model.memory.empty() ? Bytes{0} : *std::ranges::max_element(model.memory);
    candidates_.push_back({full, {}});
    for (const Seconds time : model.time) candidates_[0].placement.makespan += time;
    if (!model.has_host) return;
    const std::uint32_t chunks = options.chunks;
    add(1, options.levels, most);
    if (chunks > 1) add(chunks, options.levels, most);
    std::ranges::stable_sort(candidates_, {}, [](const PlacedLevel& c) { return c.placement.makespan; });
  }

  TapeOutcome within(std::optional<Bytes> budget) {
    const PlannedTape* best = nullptr;
    for (PlacedLevel& candidate : candidates_) {
      if (budget && candidate.level > *budget) continue;
      if (best != nullptr && best->makespan <= takes_at_least(candidate)) break;
      const std::optional<PlannedTape>& plan = simulated(candidate);
      if (!plan || (budget && plan->peak > *budget)) continue;
      if (best == nullptr || plan->makespan < best->makespan) best = &*plan;
    }
    if (best != nullptr) return *best;
    return Infeasible{"no more than this can be offloaded", smallest()};
  }

  std::vector<Bytes> levels() const {
    std::vector<Bytes> levels;
    for (const PlacedLevel& candidate : candidates_) levels.push_back(candidate.level);
    std::ranges::sort(levels);
    return levels;
  }

 private:
  void add(std::uint32_t chunks, std::optional<std::int64_t> levels, std::optional<Bytes> most) {
    const std::vector<OffloadItem> items = offload_items(model_, chunks);
    std::vector<Selection> selections;
    selections.reserve(std::size(all_rules));
    for (const SelectionRule rule : all_rules) selections.push_back(select_items(model_, items, rule));
    least_ = selections.front().peaks.back();  // all rules agree
    const Bytes full = selections.front().peaks.front();
    for (const Bytes level : memory_levels(least_, full, levels, model_.positions(), fewest_levels)) {
      if (most && level > std::max(*most, least_)) continue;
      if (std::optional<PlacedCopies> made = best_placement(model_, selections, level)) {
        candidates_.push_back({level, std::move(*made)});
      }
    }
  }

  /// Of an iteration; several micro-batches may overlap at their ends.
  Seconds takes_at_least(const PlacedLevel& candidate) const {
    if (task_.problem.micro_batches > 1) return Seconds{0};
    return (1 - sum_tolerance) * (candidate.placement.makespan + updates(task_));
  }

  const std::optional<PlannedTape>& simulated(PlacedLevel& candidate) {
    if (!candidate.simulated) candidate.plan = planned_moves(task_, model_, candidate.placement.moves);
    candidate.simulated = true;
    return candidate.plan;
  }

  /// The least budget within which there is a plan.
  std::optional<Bytes> smallest() {
    std::optional<Bytes> least;
    for (PlacedLevel& candidate : candidates_) {
      if (least && candidate.level >= *least) continue;
      const std::optional<PlannedTape>& plan = simulated(candidate);
      if (!plan) continue;
      const Bytes needed = std::max(candidate.level, plan->peak);
      if (!least || needed < *least) least = needed;
    }
    return least;
  }

  const PartTask& task_;
  const OffloadModel& model_;
  Bytes least_;
  std::vector<PlacedLevel> candidates_;  // the fastest first, if nobody shares the links
};

constexpr auto offload_greedy_options = options_of<OffloadOptions>(copy_chunks_option, levels_option, store_option);

std::vector<TapeOutcome> offload_greedy_tapes(const PartTask& task, const OffloadOptions& options,
                                              std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  const std::variant<OffloadModel, std::string> made = offload_model(task, before, offload_store(task, options));
  if (const std::string* why = std::get_if<std::string>(&made)) return refused(*why, budgets);
  const auto& model = std::get<OffloadModel>(made);
  std::optional<Bytes> most = Bytes{0};  // where the host may be full, the least feasible budget may be any level
  if (model.host_capacity != largest_bytes) most.reset();
  for (const std::optional<Bytes>& budget : budgets) {
    if (most) most = budget ? std::optional(std::max(*most, *budget)) : std::nullopt;
  }
  OffloadPlanner planner(task, model, options, most);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(planner.within(budget));
  return with_fluid_gaps(task, model, budgets, std::move(outcomes));
}

std::vector<Bytes> offload_greedy_candidates(const PartTask& task, const OffloadOptions& options) {
  const std::variant<OffloadModel, std::string> model = offload_model(task, nullptr, offload_store(task, options));
  if (std::holds_alternative<std::string>(model)) return {};
  return OffloadPlanner(task, std::get<OffloadModel>(model), options, std::nullopt).levels();
}

struct OffloadFractionalOptions : OffloadOptions {
  OffloadFractionalOptions() { chunks = 16; }
};

FrontOfMoves offload_fractional_plans(const PartTask& task, const OffloadFractionalOptions& options,
                                      const OffloadModel& model) {
  FrontOfMoves pool;
  add_simulated(pool, task, model, {});
  if (!model.has_host) return pool;
  const Selection selection = select_items(model, offload_items(model, options.chunks), SelectionRule::first_made);
  for (const Bytes budget :
       memory_levels(selection.peaks.back(), selection.peaks.front(), options.levels, model.positions())) {
    const std::span<const OffloadItem> items = std::span(selection.items).first(*selection.needed(budget));
    if (std::optional<PlacedCopies> made = placed_items(model, items, budget)) {
      add_simulated(pool, task, model, std::move(made->moves));
    }
  }
  return pool;
}

constexpr auto offload_fractional_options = options_of<OffloadFractionalOptions>(
    option_of<&ChunkOptions::chunks>({
        .name = "chunks",
        .least = 1,
        .most = 1000,
        .help = "number of chunks of a value; each chunk is copied and freed on its own",
    }),
    levels_option, store_option);

// The dynamic program of `offload_dp`: stage by stage inwards, its forward and its backward together,
//   I(i, O, f, b) = least idle time of stages i.. if O bytes have been chosen to leave, of which f wait to leave when
//   forward i starts, and b must still come back, in reverse, when backward i ends.
// Stage i idles for the bytes that must move for its two memory needs,
//   f' = f - wait_f - time(F_i) * bandwidth out,  wait_f = max(0, memory(F_i) - O + f - budget) <= f,
// b' likewise with the way back; then its own value joins O, f' and b', or stays.

/// One stage: its forward and backward positions, and its values that may leave, as gaps.
struct OffloadStage {
  std::uint32_t forward = 0, backward = 0;
  std::vector<std::uint32_t> gaps;
  Bytes bytes;
};

constexpr float infinite = std::numeric_limits<float>::infinity();

class OffloadTable {
 public:
  OffloadTable(const OffloadModel& model, const std::vector<OffloadStage>& stages, Bytes budget, std::uint32_t slots)
      : model_(model), stages_(stages), budget_(budget), slots_(slots), side_(slots + 1) {
    Bytes all;
    for (const OffloadStage& stage : stages) all += stage.bytes;
    slot_ = Bytes{std::max<std::int64_t>(1, (all.count + slots - 1) / slots)};
  }

  std::optional<std::vector<bool>> solve() {
    idle_.assign(size(), infinite);
    idle_[0] = 0;
    for (const OffloadStage& stage : stages_) advance(stage);
    const auto best = std::ranges::min_element(idle_);
    if (*best == infinite) return std::nullopt;
    std::vector<bool> leaves(stages_.size());
    auto state = static_cast<std::uint32_t>(best - idle_.begin());
    for (std::size_t i = stages_.size(); i-- > 0;) {
      leaves[i] = came_[i][state].leaves;
      state = came_[i][state].from;
    }
    return leaves;
  }

 private:
  struct Came {
    std::uint32_t from = 0;
    bool leaves = false;
  };
  struct Moved {
    bool possible = false;
    float idle = 0;
    std::uint32_t left = 0;  ///< slots that still wait
  };

  std::size_t size() const { return std::size_t{side_} * side_ * side_; }

  /// One direction of a stage.
  Moved move(std::uint32_t chosen, std::uint32_t waiting, std::uint32_t position, const CopyRate& rate) const {
    const Bytes waits = std::int64_t{waiting} * slot_, away = std::int64_t{chosen} * slot_;
    const Bytes wait = std::max(Bytes{}, model_.memory[position] - away + waits - budget_);
    if (wait > waits) return {};
    const Seconds idle = wait / rate.bandwidth;
    const double moved = model_.time[position].value * rate.bandwidth.value;
    const double left = static_cast<double>((waits - wait).count) - (moved > 0 ? moved : 0);
    const double slots = left > 0 ? std::ceil(left / static_cast<double>(slot_.count)) : 0;
    return {true, static_cast<float>(idle.value), static_cast<std::uint32_t>(slots)};
  }

  void advance(const OffloadStage& stage) {
    std::vector<float> next(size(), infinite);
    std::vector<Came>& came = came_.emplace_back(size());
    const auto joins = static_cast<std::uint32_t>((stage.bytes.count + slot_.count - 1) / slot_.count);
    const auto leaves = static_cast<std::uint32_t>(stage.bytes.count / slot_.count);
    std::uint32_t state = 0;
    for (std::uint32_t chosen = 0; chosen <= slots_; ++chosen) {
      std::vector<Moved> out, in;
      for (std::uint32_t waiting = 0; waiting <= slots_; ++waiting) {
        out.push_back(move(chosen, waiting, stage.forward, model_.out));
        in.push_back(move(chosen, waiting, stage.backward, model_.in));
      }
      for (std::uint32_t f = 0; f <= slots_; ++f) {
        for (std::uint32_t b = 0; b <= slots_; ++b, ++state) {
          if (idle_[state] == infinite || !out[f].possible || !in[b].possible) continue;
          const float idle = idle_[state] + out[f].idle + in[b].idle;
          const auto reach = [&](std::uint32_t c, std::uint32_t to_leave, std::uint32_t to_return, bool goes) {
            const std::uint32_t to =
                (std::min(c, slots_) * side_ + std::min(to_leave, slots_)) * side_ + std::min(to_return, slots_);
            if (idle >= next[to]) return;
            next[to] = idle;
            came[to] = {state, goes};
          };
          reach(chosen, out[f].left, in[b].left, false);
          if (leaves > 0) reach(chosen + leaves, out[f].left + joins, in[b].left + joins, true);
        }
      }
    }
    idle_ = std::move(next);
  }

  const OffloadModel& model_;
  const std::vector<OffloadStage>& stages_;
  Bytes budget_, slot_;
  std::uint32_t slots_, side_;
  std::vector<float> idle_;              // by state: chosen, waiting to leave, waiting to come back
  std::vector<std::vector<Came>> came_;  // by stage and state
};

/// By stage whether its value leaves; nothing where that is never enough. Sizes are rounded up to a slot where they
/// wait, down where they have left.
std::optional<std::vector<bool>> choose_stages(const OffloadModel& model, const std::vector<OffloadStage>& stages,
                                               Bytes budget, std::uint32_t slots) {
  return OffloadTable(model, stages, budget, slots).solve();
}

struct OffloadDpOptions : OffloadOptions {
  std::uint32_t slots = 24;
};

/// A stage's first forward and last backward position on the tape, and what its first forward leaves for the backward.
std::vector<OffloadStage> stages_of(const PartTask& task, const OffloadModel& model) {
  std::vector<OffloadStage> stages(task.problem.chain->stages.size());
  std::vector<bool> ran(stages.size(), false);
  for (std::uint32_t p = 0; p < model.positions(); ++p) {
    const Op& op = task.problem.graph[model.computes[p].op];
    if (op.phase == Phase::forward && !ran[op.stage]) stages[op.stage].forward = p;
    if (op.phase == Phase::forward) ran[op.stage] = true;
    if (op.phase != Phase::forward) stages[op.stage].backward = p;
  }
  for (const std::uint32_t g : saved_gaps(model)) {
    const OffloadGap& gap = model.gaps[g];
    if (!gap.holds_positions()) continue;
    OffloadStage& stage = stages[task.problem.graph[model.computes[gap.made].op].stage];
    stage.gaps.push_back(g);
    stage.bytes += gap.bytes;
  }
  return stages;
}

FrontOfMoves offload_dp_plans(const PartTask& task, const OffloadDpOptions& options, const OffloadModel& model) {
  FrontOfMoves pool;
  add_simulated(pool, task, model, {});
  if (!model.has_host) return pool;
  const std::uint32_t chunks = options.chunks;
  const auto slots = options.slots;
  const Selection all = select_items(model, offload_items(model, 1), SelectionRule::first_made);
  const std::vector<OffloadStage> stages = stages_of(task, model);
  for (const Bytes budget : memory_levels(all.peaks.back(), all.peaks.front(), options.levels, model.positions())) {
    const std::optional<std::vector<bool>> leaves = choose_stages(model, stages, budget, slots);
    std::vector<bool> chosen(model.gaps.size(), false);
    for (std::size_t i = 0; leaves && i < stages.size(); ++i) {
      for (const std::uint32_t g : stages[i].gaps) chosen[g] = (*leaves)[i];
    }
    if (std::optional<PlacedCopies> made = place_chosen(model, chosen, chunks, budget)) {
      add_simulated(pool, task, model, std::move(made->moves));
    }
  }
  return pool;
}

constexpr auto offload_dp_options = options_of<OffloadDpOptions>(
    option_of<&OffloadDpOptions::slots>({
        .name = "slots",
        .least = 2,
        .most = 100,
        .help = "resolution of the choice: sizes are rounded to 1/slots of the bytes that can be offloaded; the plan "
                "itself is exact",
    }),
    copy_chunks_option, levels_option, store_option);

}  // namespace

// The strategy `offload_greedy`: move to the host, where memory is fullest, what costs least exposed time for its
// bytes; for any chain or graph. Source: own. The measures are Capuchin's free time (Peng et al., ASPLOS 2020) and
// bytes per exposed second.
extern constinit const StrategyInfo offload_greedy_strategy{
    .name = "offload_greedy",
    .family = Family::offloading,
    .summary = "where memory is fullest, offloads the values that free the most bytes per second of exposed copying",
    .source = "own; free time as measured by Capuchin, Peng et al., ASPLOS 2020",
    .options = offload_greedy_options,
    .kind =
        TapeStrategy{.tapes = by_options<offload_greedy_tapes>, .candidates = by_options<offload_greedy_candidates>},
};

// The strategy `offload_fractional`: if any amount of data could be moved, it would be best to move just what is in
// excess, oldest first; values are cut into many chunks to come near that.
// Source: the fractional relaxation of Beaumont, Eyraud-Dubois, Shilova, "Optimal GPU-CPU offloading strategies for
// deep neural network training", Euro-Par 2020.
extern constinit const StrategyInfo offload_fractional_strategy{
    .name = "offload_fractional",
    .family = Family::offloading,
    .summary = "offloads only the bytes above the budget, oldest values first, in chunks",
    .source = "Beaumont, Eyraud-Dubois, Shilova, \"Optimal GPU-CPU offloading strategies\", Euro-Par 2020",
    .options = offload_fractional_options,
    .kind = planned_with_gaps<OffloadFractionalOptions, offload_fractional_plans>(),
    .effort = {.stages = 300, .ops = 5000},
};

// The strategy `offload_dp`: which stages' values leave, by dynamic programming over the stages of a chain, if copies
// that end inside a stage were free to be counted at its end. Source: the second relaxation of Beaumont, Eyraud-Dubois,
// Shilova, "Optimal GPU-CPU offloading strategies for deep neural network training", Euro-Par 2020. Its text was not at
// hand; states as in the offloading half of POFO (Beaumont, Eyraud-Dubois, Shilova, NeurIPS 2021).
extern constinit const StrategyInfo offload_dp_strategy{
    .name = "offload_dp",
    .family = Family::offloading,
    .summary = "chooses the stages to offload by dynamic programming over the bytes that wait to leave and to return",
    .source = "Beaumont, Eyraud-Dubois, Shilova, \"Optimal GPU-CPU offloading strategies\", Euro-Par 2020",
    .chains_only = true,
    .options = offload_dp_options,
    .kind = planned_with_gaps<OffloadDpOptions, offload_dp_plans>(),
    .effort = {.stages = 300},
};

}  // namespace plimsoll
