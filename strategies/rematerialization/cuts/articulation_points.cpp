#include "strategies/rematerialization/cuts/articulation_points.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "strategies/api/strategy.h"
#include "strategies/models/op_sequence.h"

namespace plimsoll {
namespace {

/// The last forward that reads the value, if one does.
std::optional<std::size_t> last_forward_reader(const ModelValue& value, std::size_t turn) {
  std::optional<std::size_t> last;
  for (const std::uint32_t reader : value.readers) {
    if (reader <= turn) last = reader;
  }
  return last;
}

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

PlanPool ap_greedy_plans(const PartTask& task, const OpModel& model, const PointsOptions& options) {
  PlanPool pool(task);
  pool.add(store_all_ops(task));
  add_greedy_segments(pool, model, options.points);
  return pool;
}

constexpr auto ap_greedy_options = options_of<PointsOptions>(points_option);

std::vector<TapeOutcome> ap_greedy_tapes(const PartTask& task, const PointsOptions& options,
                                         std::span<const std::optional<Bytes>> budgets, const Tape*) {
  if (const std::optional<std::string> why = not_one_part(task)) return refused(*why, budgets);
  return ap_greedy_plans(task, op_model(task), options).outcomes(budgets, "no segment size fits");
}

std::vector<Bytes> ap_greedy_candidates(const PartTask& task, const PointsOptions& options) {
  return ap_greedy_plans(task, op_model(task), options).budgets();
}

}  // namespace

std::vector<std::size_t> cut_points(const OpModel& model, Points points) {
  const std::size_t turn = last_forward(model);
  std::vector<std::int64_t> change(model.ops.size() + 1, 0);  // of the number of values that cross
  for (const ModelValue& value : model.values) {
    if (!value.maker) continue;
    const std::optional<std::size_t> last = last_forward_reader(value, turn);
    if (!last) continue;
    ++change[*value.maker];
    --change[*last];
  }
  std::vector<std::size_t> found;
  std::int64_t crossing = 0;
  for (std::size_t o = 0; o < turn; ++o) {
    crossing += change[o];
    if (crossing == 1 || points == Points::all) found.push_back(o);
  }
  return found;
}

std::vector<std::size_t> sqrt_cuts(const std::vector<std::size_t>& points) {
  const auto n = static_cast<double>(points.size() + 1);  // segments there could be
  const auto segments = static_cast<std::size_t>(std::max(1L, std::lround(std::sqrt(n))));
  std::vector<std::size_t> cuts;
  for (std::size_t k = 1; k < segments; ++k) cuts.push_back(points[k * (points.size() + 1) / segments - 1]);
  return cuts;
}

std::vector<std::size_t> greedy_cuts(const OpModel& model, const std::vector<std::size_t>& points, Bytes limit) {
  std::vector<std::size_t> cuts;
  Bytes since;
  std::size_t next = 0;
  for (const std::size_t point : points) {
    for (; next <= point; ++next) {
      for (const std::uint32_t v : model.ops[next].ways.front().makes) {
        since += model.storages[model.values[v].storage];
      }
    }
    if (since <= limit) continue;
    cuts.push_back(point);
    since = {};
  }
  return cuts;
}

Evicted evicted_between(const OpModel& model, const std::vector<std::size_t>& cuts) {
  const std::size_t turn = last_forward(model);
  Evicted evicted(model.values.size(), false);
  if (cuts.empty()) return evicted;
  for (std::uint32_t v = 0; v < model.values.size(); ++v) {
    const ModelValue& value = model.values[v];
    if (!can_evict(model, v) || *value.maker > cuts.back()) continue;
    const std::size_t last = last_forward_reader(value, turn).value_or(*value.maker);
    const auto cut = std::ranges::lower_bound(cuts, *value.maker);
    evicted[v] = cut == cuts.end() || *cut >= last;
  }
  return evicted;
}

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
