// The strategy `pofo`: recomputation and offloading of a chain's activations chosen together, by dynamic programming.
// Source: Beaumont, Eyraud-Dubois, Shilova, "Efficient combination of rematerialization and offloading for training
// DNNs", NeurIPS 2021.

#include <algorithm>
#include <limits>

#include "strategies/api/better_outcome.h"
#include "strategies/api/strategy.h"
#include "strategies/list.h"
#include "strategies/models/chain_part.h"
#include "strategies/models/op_sequence.h"
#include "strategies/models/tape_cost.h"
#include "strategies/offloading/activations/known_plans.h"
#include "strategies/offloading/activations/offload_bound.h"
#include "strategies/offloading/activations/offload_options.h"
#include "strategies/offloading/activations/offload_selection.h"
#include "strategies/offloading/activations/tape_pool.h"
#include "strategies/offloading/pofo/pofo_search.h"

namespace plimsoll {
namespace {

struct PofoOptions : ChunkOptions {
  std::int32_t slots = 100;
  std::int64_t levels = 40;
};

constexpr Bytes no_pofo_limit{std::numeric_limits<std::int64_t>::max() / 4};
constexpr std::size_t plans_tried = 4;  // of the program's best, at each level
constexpr double slack = 1.05;          // copies in chunks and exact sizes may be faster than the program's times

/// What this one is never worse than: cheaper strategies, and the two that together do what it does.
std::vector<std::vector<Pass>> pofo_others() {
  const Pass rotor = pass_of(rotor_strategy), greedy = pass_of(offload_greedy_strategy);
  return {{rotor},
          {rotor, greedy},
          {greedy},
          {pass_of(offload_dp_strategy)},
          {pass_of(offload_fractional_strategy)},
          {pass_of(save_on_cpu_strategy)},
          {pass_of(vdnn_strategy)},
          {pass_of(superneurons_strategy)},
          {pass_of(capuchin_strategy)}};
}

double finite(BytesPerSecond bandwidth) {
  return std::min(bandwidth.value, 1e18);
}

class PofoPlanner {
 public:
  PofoPlanner(const PartTask& task, const PofoOptions& options, const OffloadModel& plain)
      : task_(task),
        plain_(plain),
        part_(chain_part(task.problem, task.part())),
        model_(chain_model(task.problem, part_)),
        chunks_(options.chunks),
        levels_(options.levels),
        slots_(options.slots),
        links_{finite(plain.out.bandwidth), finite(plain.in.bandwidth)},
        base_(model_.resident + model_.x[0]),
        most_(evaluate(model_, store_all_sequence(model_.stages())).peak),
        slot_{std::max<std::int64_t>(1, ((most_ - base_).count + slots_ - 1) / slots_)} {}

  /// Plans whatever the budget: of other strategies at the levels of memory, and own ones that may be faster.
  TapePool plans() const {
    TapePool pool;
    std::vector<std::optional<Bytes>> budgets{std::nullopt};
    for (std::int64_t k = 1; k <= levels_; ++k) budgets.emplace_back(level(k, levels_));
    for (const std::vector<Pass>& passes : pofo_others()) {
      for (PlannedTape& tape : known_tapes(passes, task_, budgets)) pool.add(std::move(tape));
    }
    if (!plain_.has_host) return pool;
    const PofoBlocks blocks(model_, links_.in, slot_, slots_, SlotRounding::up);
    for (std::int64_t k = 1; k <= levels_; ++k) {
      const Bytes budget = level(k, levels_);
      const PlannedTape* fastest = pool.fastest_within(budget);
      if (fastest != nullptr && fastest->makespan <= work()) break;
      add_plans(blocks, budget, pool);
    }
    return pool;
  }

  /// For each budget the fastest of these plans and of what the others answer to just that budget: whatever else is
  /// asked, the answer is the same.
  std::vector<TapeOutcome> outcomes(std::span<const std::optional<Bytes>> budgets) const {
    std::vector<TapeOutcome> best = plans().outcomes(budgets, "no recomputation and offloading of stages fits");
    for (const std::vector<Pass>& passes : pofo_others()) keep_better(best, tapes_of_passes(task_, passes, budgets));
    return best;
  }

  /// No schedule of the class takes less. Nothing where it is not known.
  std::vector<std::optional<Seconds>> bounds(std::span<const std::optional<Bytes>> budgets,
                                             std::span<const TapeOutcome> outcomes) const {
    std::vector<std::optional<Seconds>> bounds(budgets.size());
    if (task_.problem.micro_batches > 1 || !plain_.has_host) return bounds;
    const PofoBlocks blocks(model_, links_.in, slot_, slots_, SlotRounding::down);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      const auto* tape = std::get_if<PlannedTape>(&outcomes[b]);
      if (tape == nullptr) continue;
      const Seconds after = updates(task_);
      const Bytes budget = std::min(budgets[b].value_or(no_pofo_limit), most_);
      bounds[b] = pofo_bound(blocks, links_, budget, tape->makespan - after) + after;
    }
    return bounds;
  }

 private:
  /// Of an iteration that recomputes nothing and waits for nothing.
  Seconds work() const { return tape_cost(task_.problem, task_.part(), offload_tape(plain_, {})).makespan; }

  Bytes level(std::int64_t k, std::int64_t of) const { return base_ + Bytes{(most_ - base_).count / of * k}; }

  void add_plans(const PofoBlocks& blocks, Bytes budget, TapePool& pool) const {
    const PlannedTape* other = pool.fastest_within(budget);
    const auto count = static_cast<double>(task_.problem.micro_batches);
    const Seconds limit = other == nullptr ? Seconds{std::numeric_limits<double>::max()}
                                           : slack / count * (other->makespan - updates(task_));
    for (const PofoPlan& plan : pofo_plans(blocks, links_, budget, limit, plans_tried)) {
      const Tape tape = chain_tape(task_.problem, task_.partition, task_.id, part_, plan.sequence);
      const std::variant<OffloadModel, std::string> made = offload_model(task_, &tape);
      const auto& model = std::get<OffloadModel>(made);
      const std::vector<bool> chosen = chosen_gaps(model, plan);
      for (const std::uint32_t chunks : {1U, chunks_}) {
        if (const std::optional<PlacedCopies> placed = place_chosen(model, chosen, chunks, budget)) {
          pool.add(planned_moves(task_, model, placed->moves));
        }
      }
    }
  }

  /// Values between forward and backward that the first forward of a stage has made to leave.
  std::vector<bool> chosen_gaps(const OffloadModel& model, const PofoPlan& plan) const {
    std::vector<bool> leaves(task_.problem.graph.tensors.size(), false);
    for (std::size_t i = 0; i < plan.output_leaves.size(); ++i) {
      const Op& forward = task_.problem.graph[task_.problem.index->forward[part_.first + part_.forward_only + i]];
      for (const TensorId t : forward.outputs) {
        const bool is_inner = std::ranges::find(forward.saved, t) != forward.saved.end();
        leaves[t.index] = is_inner ? plan.inner_leaves[i] : plan.output_leaves[i];
      }
    }
    std::vector<bool> chosen(model.gaps.size(), false);
    for (const std::uint32_t g : saved_gaps(model)) chosen[g] = leaves[model.gaps[g].tensor.index];
    return chosen;
  }

  const PartTask& task_;
  const OffloadModel& plain_;
  ChainPart part_;
  ChainModel model_;
  std::uint32_t chunks_;
  std::int64_t levels_;
  std::int32_t slots_;
  PofoLinks links_;
  Bytes base_, most_, slot_;
};

constexpr auto pofo_options = options_of<PofoOptions>(
    option_of<&PofoOptions::slots>({
        .name = "slots",
        .least = 2,
        .most = 200,
        .help = "resolution of the choice: sizes are rounded to 1/slots of the memory of plain training; the plan "
                "itself is exact",
    }),
    copy_chunks_option,
    option_of<&PofoOptions::levels>({
        .name = "levels",
        .least = 1,
        .most = 200,
        .help = "number of memory levels at which plans are made, the same for all budgets",
    }));

std::vector<TapeOutcome> pofo_tapes(const PartTask& task, const PofoOptions& options,
                                    std::span<const std::optional<Bytes>> budgets, const Tape* before) {
  if (before != nullptr) return refused("pofo chooses recomputation and offloading together, itself", budgets);
  const std::variant<OffloadModel, std::string> plain = offload_model(task, nullptr);
  if (const std::string* why = std::get_if<std::string>(&plain)) return refused(*why, budgets);
  const PofoPlanner planner(task, options, std::get<OffloadModel>(plain));
  std::vector<TapeOutcome> outcomes = planner.outcomes(budgets);
  const std::vector<std::optional<Seconds>> bounds = planner.bounds(budgets, outcomes);
  for (std::size_t b = 0; b < outcomes.size(); ++b) {
    auto* tape = std::get_if<PlannedTape>(&outcomes[b]);
    if (tape == nullptr) continue;
    tape->gap = std::nullopt;
    if (bounds[b]) tape->gap = std::max(0.0, tape->makespan / *bounds[b] - 1);
  }
  return outcomes;
}

std::vector<Bytes> pofo_candidates(const PartTask& task, const PofoOptions& options) {
  const std::variant<OffloadModel, std::string> plain = offload_model(task, nullptr);
  if (std::holds_alternative<std::string>(plain)) return {};
  return PofoPlanner(task, options, std::get<OffloadModel>(plain)).plans().peaks();
}

}  // namespace

extern constinit const StrategyInfo pofo_strategy{
    .name = "pofo",
    .family = Family::offloading,
    .summary =
        "chooses recomputation and offloading together, by dynamic programming over the bytes kept, leaving and "
        "returning",
    .source =
        "Beaumont, Eyraud-Dubois, Shilova, \"Efficient combination of rematerialization and offloading\", NeurIPS "
        "2021",
    .chains_only = true,
    .options = pofo_options,
    .kind = TapeStrategy{.tapes = by_options<pofo_tapes>, .candidates = by_options<pofo_candidates>},
    .effort = {.stages = 40},
};

}  // namespace plimsoll
