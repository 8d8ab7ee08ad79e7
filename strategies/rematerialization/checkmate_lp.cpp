#include "strategies/rematerialization/checkmate_lp.h"

#include <chrono>
#include <random>

#include "strategies/rematerialization/ap_greedy.h"
#include "strategies/rematerialization/checkmate_model.h"
#include "strategies/rematerialization/checkmate_rounding.h"
#include "strategies/rematerialization/exact_search.h"
#include "strategies/rematerialization/greedy_recompute.h"

namespace plimsoll {
namespace {

void add_thresholds(PlanPool& pool, const OpModel& model, const std::vector<std::vector<double>>& kept) {
  for (int tenth = 1; tenth <= 9; ++tenth) {
    Kept whole(kept.size(), std::vector<bool>(model.values.size(), false));
    for (std::size_t t = 0; t < kept.size(); ++t) {
      for (std::size_t v = 0; v < kept[t].size(); ++v) whole[t][v] = kept[t][v] >= 0.1 * tenth;
    }
    if (const auto sequence = least_runs(model, std::move(whole))) pool.add(*sequence);
  }
}

void add_random(PlanPool& pool, const OpModel& model, const std::vector<std::vector<double>>& kept,
                std::mt19937_64& generator) {
  Kept whole(kept.size(), std::vector<bool>(model.values.size(), false));
  for (std::size_t t = 0; t < kept.size(); ++t) {
    for (std::size_t v = 0; v < kept[t].size(); ++v) {
      const double unit = static_cast<double>(generator() >> 11U) * 0x1p-53;
      whole[t][v] = unit < kept[t][v];
    }
  }
  if (const auto sequence = least_runs(model, std::move(whole))) pool.add(*sequence);
}

PlanPool plans(const PartTask& task, const Options& options) {
  const OpModel model = op_model(task);
  PlanPool pool(task);
  pool.add(store_all_ops(task));
  add_greedy_segments(pool, model, Points::all);
  add_greedy_recompute(pool, model);
  add_rounded(pool, model,
              {.levels = options.integer("levels"),
               .samples = options.integer("samples"),
               .seed = options.integer("seed"),
               .seconds = options.integer("time_limit")});
  return pool;
}

}  // namespace

void add_rounded(PlanPool& pool, const OpModel& model, const RoundingEffort& effort) {
  const auto start = std::chrono::steady_clock::now();
  std::mt19937_64 generator(static_cast<std::uint64_t>(effort.seed));
  const Bytes most = pool.peaks().back(), least = least_imaginable(model);
  if (least == most) return;
  constexpr std::size_t most_ops = 400;  // beyond, the program does not fit any memory
  if (model.ops.size() > most_ops) return;
  const CheckmateModel program(model, most, Formulation::tight);
  Relaxation relaxation(program.program(), static_cast<double>(effort.seconds));
  for (std::int64_t level = effort.levels; level-- > 0;) {
    const Bytes budget{least.count + (most - least).count * level / effort.levels};
    for (const auto& [row, upper] : program.limits(budget)) relaxation.set_upper(row, upper);
    const std::optional<std::vector<double>> solution = relaxation.solve();
    if (!solution) break;  // lower levels are no easier
    const std::vector<std::vector<double>> kept = program.kept(*solution);
    add_thresholds(pool, model, kept);
    for (std::int64_t s = 0; s < effort.samples; ++s) add_random(pool, model, kept, generator);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    if (passed.count() > static_cast<double>(effort.seconds)) break;
  }
}

std::vector<TapeOutcome> checkmate_lp_tapes(const PartTask& task, const Options& options,
                                            std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return plans(task, options).outcomes(budgets, "no rounded plan fits");
}

std::vector<Bytes> checkmate_lp_candidates(const PartTask& task, const Options& options) {
  return plans(task, options).peaks();
}

}  // namespace plimsoll
