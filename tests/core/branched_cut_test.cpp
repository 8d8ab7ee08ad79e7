// Branch and bound at an instant, against all that may run again there and against all schedules of tiny graphs.

#include "sim/bound/branched_cut.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>
#include <set>

#include "tests/core/bound_oracle.h"
#include "tests/generate/problems.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr double nothing_fits = std::numeric_limits<double>::infinity();
constexpr BranchLimits all_nodes{.nodes = 100'000, .found = 32, .enough = {}};

/// The least that runs again, of all choices of what runs after the instant.
double least_extra(const SnapshotModel& model, const Instant& instant, std::int64_t budget) {
  double least = nothing_fits;
  const std::size_t ops = model.ops.size();
  for (std::uint32_t runs = 0; runs < 1U << ops; ++runs) {
    const auto is_run = [&](std::uint32_t o) { return (runs >> o & 1U) != 0; };
    double extra = 0;
    bool may = true;
    for (std::uint32_t o = 0; o < ops; ++o) {
      const Side side = instant.side[o];
      if (side == Side::after || side == Side::itself) may &= is_run(o) == (side == Side::after);
      if (side != Side::before || !is_run(o)) continue;
      may &= !model.ops[o].once || (model.ops[o].reads.empty() && model.ops[o].makes.empty());
      if (!model.ops[o].reads.empty() || !model.ops[o].makes.empty()) extra += model.ops[o].again.value;
    }
    if (!may || extra >= least) continue;
    std::int64_t kept = instant.bytes.count;
    for (std::size_t v = 0; v < model.values.size(); ++v) {
      const SnapshotValue& value = model.values[v];
      const bool is_read = std::ranges::any_of(value.readers, is_run);
      const auto has_run = [&](std::uint32_t r) { return instant.side[r] == Side::before; };
      const bool may_come = !value.maker && std::ranges::none_of(value.readers, has_run);
      const bool is_made = value.maker && (is_run(*value.maker) || instant.side[*value.maker] == Side::itself);
      if (!instant.counted[v] && is_read && !is_made && !may_come) kept += value.bytes.count;
    }
    if (kept <= budget) least = extra;
  }
  return least;
}

std::set<std::int64_t> budgets_at(const SnapshotModel& model, const Instant& instant) {
  std::set<std::int64_t> budgets;
  for (const SnapshotCut& cut : SnapshotCuts(model, instant).front()) {
    const std::int64_t fits = (instant.bytes + cut.kept_bytes).count;
    for (std::int64_t less = 0; less < 4; ++less) budgets.insert(fits - less);
  }
  return budgets;
}

TEST_CASE("branching at an instant finds the least of all that may run again there", "[bound][property]") {
  std::uint32_t points = 0, above_the_cut = 0, optimal = 0;
  for (const RandomCase seed : fewer_cases(1, 150)) {
    const ProblemOptions options{.gradients = seed % 3 == 0 ? Gradients::existing : Gradients::fresh};
    const Problem problem = problem_of(tiny_graph(seed, 5 + static_cast<std::uint32_t>(seed % 3)), gpus({}), options);
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.one_call = false});
    for (std::uint32_t o = 0; o < model.ops.size(); ++o) {
      if (!model.ops[o].is_there) continue;
      const Instant instant = instant_at(model, {o});
      SnapshotCuts cuts(model, instant);
      for (const std::int64_t budget : budgets_at(model, instant)) {
        CAPTURE(seed, o, budget);
        const BranchedBound found = branched_bound(cuts, model, Bytes{budget}, all_nodes);
        const double least = least_extra(model, instant, budget);
        const InstantBound cut = cuts.bound(Bytes{budget});
        if (least == nothing_fits) {
          REQUIRE(found.extra.value == nothing_fits);
          continue;
        }
        ++points;
        REQUIRE(found.is_exact);
        REQUIRE(found.extra.value == Approx(least).margin(1e-7));
        REQUIRE(found.extra.value <= least);
        REQUIRE(found.found.front().extra.value == Approx(least).margin(1e-7));
        REQUIRE(found.found.front().kept_bytes + instant.bytes <= Bytes{budget});
        if (!cut.needs) above_the_cut += found.extra.value > cut.extra.value + 1e-6 ? 1 : 0;
        const BranchedBound few = branched_bound(cuts, model, Bytes{budget}, {.nodes = 2});
        REQUIRE(few.extra.value <= found.extra.value * (1 + 1e-9));
        const std::optional<double> fastest = fastest_by_trying(problem, budget);
        if (!fastest) continue;
        REQUIRE(model.base.value + found.extra.value <= *fastest + 1e-9);
        optimal += least > 0 && model.base.value + found.extra.value >= *fastest - 1e-6 ? 1 : 0;
      }
    }
  }
  CAPTURE(points, above_the_cut, optimal);
  if (!all_cases()) return;
  CHECK(points > cases_of(1200U));
  CHECK(above_the_cut > cases_of(200U));
  CHECK(optimal > cases_of(60U));
}

TEST_CASE("what is enough need not be beaten", "[bound]") {
  for (const RandomCase seed : random_cases(1, 60)) {
    const Problem problem = problem_of(random_graph(seed, 10), gpus({}));
    const SnapshotModel model = snapshot_model(problem, DeviceId{0}, {.one_call = false});
    const OpId op{static_cast<std::uint32_t>(seed % problem.graph.ops.size())};
    if (!model.ops[op.index].is_there) continue;
    SnapshotCuts cuts(model, instant_at(model, op));
    const Bytes budget = cuts.instant().bytes + Bytes{cuts.at(0).kept_bytes.count * 2 / 3};
    const BranchedBound all = branched_bound(cuts, model, budget, all_nodes);
    CAPTURE(seed, all.extra.value);
    if (all.extra.value == nothing_fits || all.extra <= Seconds{0}) continue;
    const Seconds half = 0.5 * all.extra, twice = 2 * all.extra;
    const auto with = [&](Seconds enough) {
      return branched_bound(cuts, model, budget, {.nodes = 100'000, .found = 32, .enough = enough});
    };
    CHECK(with(half).extra.value == Approx(half.value));
    CHECK(with(half).nodes <= all.nodes);
    CHECK(with(twice).extra.value == Approx(all.extra.value));
  }
}

}  // namespace
}  // namespace plimsoll
