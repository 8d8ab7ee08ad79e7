#include "strategies/rematerialization/checkmate.h"

#include "strategies/rematerialization/ap_greedy.h"
#include "strategies/rematerialization/checkmate_solver.h"
#include "strategies/rematerialization/greedy_recompute.h"

namespace plimsoll {
namespace {

CheckmateSolver solver(const PartTask& task, const Options& options) {
  OpModel model = op_model(task);
  PlanPool known(task);
  known.add(store_all_ops(task));
  add_greedy_segments(known, model, Points::all);
  add_greedy_recompute(known, model);
  const CheckmateEffort effort{
      .formulation = options.text("formulation") == "kappa" ? Formulation::kappa : Formulation::tight,
      .limits = {.seconds = static_cast<double>(options.integer("time_limit")),
                 .nodes = static_cast<int>(options.integer("nodes"))}};
  return {task, std::move(model), effort, std::move(known)};
}

}  // namespace

std::vector<TapeOutcome> checkmate_tapes(const PartTask& task, const Options& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  CheckmateSolver checkmate = solver(task, options);
  std::vector<TapeOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) outcomes.push_back(checkmate.solve(budget));
  return outcomes;
}

std::vector<Bytes> checkmate_candidates(const PartTask& task, const Options& options) {
  return solver(task, options).candidates();
}

}  // namespace plimsoll
