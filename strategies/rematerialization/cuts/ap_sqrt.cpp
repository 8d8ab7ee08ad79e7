#include "strategies/rematerialization/cuts/ap_points.h"

#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {
namespace {

constexpr auto ap_sqrt_options = options_of<PointsOptions>(points_option);

std::vector<TapeOutcome> ap_sqrt_tapes(const PartTask& task, const PointsOptions& options,
                                       std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  const OpModel model = op_model(task);
  const std::vector<std::size_t> cuts = sqrt_cuts(cut_points(model, options.points));
  const std::optional<OpSequence> sequence = recompute_order(model, evicted_between(model, cuts));
  PlanPool pool(task);
  pool.add(sequence.value_or(store_all_ops(task)));
  return pool.outcomes(budgets, "ap_sqrt has one schedule, whatever the budget");
}

}  // namespace

extern constinit const StrategyInfo ap_sqrt_strategy{
    .name = "ap_sqrt",
    .family = Family::rematerialization,
    .summary =
        "cuts a graph at sqrt(n) of its articulation points, keeps the values that cross, and recomputes the rest",
    .source =
        "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, section 4; on graphs: "
        "Jain et al., 'Checkmate', 2020, section 6",
    .options = ap_sqrt_options,
    .kind = TapeStrategy{.tapes = by_options<ap_sqrt_tapes>},
};

}  // namespace plimsoll
