#include "strategies/rematerialization/cuts/ap_sqrt.h"

#include "strategies/common/op_sequence.h"

namespace plimsoll {

std::vector<TapeOutcome> ap_sqrt_tapes(const PartTask& task, const Options& options,
                                       std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  const OpModel model = op_model(task);
  const std::vector<std::size_t> cuts = sqrt_cuts(cut_points(model, points_of(options.text("points"))));
  const std::optional<OpSequence> sequence = recompute_order(model, evicted_between(model, cuts));
  PlanPool pool(task);
  pool.add(sequence.value_or(store_all_ops(task)));
  return pool.outcomes(budgets, "ap_sqrt has one schedule, whatever the budget");
}

}  // namespace plimsoll
