#include "strategies/rematerialization/cuts/ap_greedy.h"

#include <set>

#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {
namespace {

PlanPool ap_greedy_plans(const PartTask& task, const OpModel& model, const PointsOptions& options) {
  PlanPool pool(task);
  pool.add(store_all_ops(task));
  add_greedy_segments(pool, model, options.points);
  return pool;
}

}  // namespace

void add_greedy_segments(PlanPool& pool, const OpModel& model, Points points) {
  const std::vector<std::size_t> allowed = cut_points(model, points);
  Bytes all;
  for (std::size_t o = 0; o <= last_forward(model); ++o) {
    for (const std::uint32_t v : model.ops[o].ways.front().makes) all += model.storages[model.values[v].storage];
  }
  // Segment sizes fall by 1/16 from step to step, down to one op a segment.
  std::set<std::vector<std::size_t>> tried;
  constexpr std::int64_t steps_down = 16;
  for (std::int64_t limit = all.count;; limit -= std::max<std::int64_t>(1, limit / steps_down)) {
    std::vector<std::size_t> cuts = greedy_cuts(model, allowed, Bytes{limit});
    const bool last = limit <= 0 || cuts.size() >= allowed.size();
    if (!cuts.empty() && tried.insert(cuts).second) {
      if (const auto sequence = recompute_order(model, evicted_between(model, cuts))) pool.add(*sequence);
    }
    if (last) break;
  }
}

namespace {

constexpr auto ap_greedy_options = options_of<PointsOptions>(points_option);

std::vector<TapeOutcome> ap_greedy_tapes(const PartTask& task, const PointsOptions& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return ap_greedy_plans(task, op_model(task), options).outcomes(budgets, "no segment size fits");
}

std::vector<Bytes> ap_greedy_candidates(const PartTask& task, const PointsOptions& options) {
  return ap_greedy_plans(task, op_model(task), options).peaks();
}

}  // namespace

extern constinit const StrategyInfo ap_greedy_strategy{
    .name = "ap_greedy",
    .family = Family::rematerialization,
    .summary =
        "cuts a graph at articulation points into segments of equal bytes and recomputes them; searches for the size",
    .source =
        "Chen, Xu, Zhang, Guestrin, 'Training Deep Nets with Sublinear Memory Cost', 2016, algorithm 3; on graphs: "
        "Jain et al., 'Checkmate', 2020, section 6",
    .options = ap_greedy_options,
    .kind = TapeStrategy{.tapes = by_options<ap_greedy_tapes>, .candidates = by_options<ap_greedy_candidates>},
};

}  // namespace plimsoll
