#include "experiments/sweep/bound_curve.h"

#include <algorithm>

#include "sim/bound/iteration_bound.h"

namespace plimsoll {
namespace {

constexpr DeviceId curve_device{0};

/// Fewer for graphs of more than 4,500 ops, whose cuts take longer.
std::size_t budgets_for(const Problem& problem) {
  return std::clamp<std::size_t>(150'000 / std::max<std::size_t>(problem.graph.ops.size(), 1), 3, 33);
}

constexpr double bytes_of_gb = 1e9;

Json curve_json(std::string_view plans, const std::vector<BoundAt>& curve) {
  Json points = Json::array();
  for (const BoundAt& at : curve) {
    points.push_back({{"budget_bytes", at.budget.count},
                      {"lower_bound_s", at.time.value},
                      {"price_s_per_gb", at.price * bytes_of_gb},
                      {"bends", at.bends}});
  }
  return {{"plans", plans}, {"points", std::move(points)}};
}

}  // namespace

std::vector<BoundAt> bound_curve(const Problem& problem, bool copies, Bytes least, Bytes most, std::size_t budgets) {
  BoundRules rules;
  if (copies) rules.out = ways_out(problem.platform, curve_device);
  IterationBounds bounds(problem, curve_device, rules);
  std::vector<BoundAt> curve;
  const auto add = [&](Bytes budget, bool bends) {
    const IterationBound bound = bounds.within(budget);
    if (!bound.needs) curve.push_back({.budget = budget, .time = bound.time, .bends = bends});
  };
  for (std::size_t i = 0; i < budgets; ++i) {
    const auto part = static_cast<std::int64_t>(i), parts = static_cast<std::int64_t>(budgets) - 1;
    const Bytes budget{least.count + (most.count - least.count) / parts * part +
                       (most.count - least.count) % parts * part / parts};
    add(budget, false);
    const std::optional<BoundBend> below = bounds.bends(budget).below;
    if (below && below->budget >= least) add(below->budget, true);
  }
  std::ranges::sort(curve, [](const BoundAt& a, const BoundAt& b) {
    return a.budget != b.budget ? a.budget < b.budget : a.bends > b.bends;
  });
  const auto is_same = [](const BoundAt& a, const BoundAt& b) { return a.budget == b.budget; };
  curve.erase(std::unique(curve.begin(), curve.end(), is_same), curve.end());
  for (std::size_t i = 0; i < curve.size(); ++i) {  // a bend itself has no one price
    const Bytes next = i + 1 < curve.size() ? curve[i + 1].budget : curve[i].budget;
    curve[i].price = bounds.within(Bytes{curve[i].budget.count + (next - curve[i].budget).count / 2}).price;
  }
  return curve;
}

Json bound_curves_json(const Problem& problem, Bytes least, Bytes most) {
  Json curves = Json::array();
  if (problem.platform.devices.size() != 1 || problem.mesh || !(least < most)) return curves;
  const std::size_t budgets = budgets_for(problem);
  curves.push_back(curve_json("recompute", bound_curve(problem, false, least, most, budgets)));
  if (ways_out(problem.platform, curve_device) > BytesPerSecond{}) {
    curves.push_back(curve_json("offload", bound_curve(problem, true, least, most, budgets)));
  }
  return curves;
}

}  // namespace plimsoll
