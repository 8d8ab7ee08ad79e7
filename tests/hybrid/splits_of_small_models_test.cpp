// Searches over splits beside all splits of small models: in the cost model, which is worked out anew here, and by
// simulation.

#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>

#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/hybrid/bsp_model.h"
#include "strategies/hybrid/elimination.h"
#include "strategies/hybrid/mesh_searches.h"
#include "strategies/hybrid/on_mesh.h"
#include "tests/generate/random.h"
#include "tests/hybrid/judged_time.h"
#include "tests/hybrid/splits_of_small_models.h"
#include "tests/random_case.h"

using namespace plimsoll;

namespace {

Plan stored_all(const Problem& split) {
  PlanOutcome outcome = plan(split, parse_spec("store_all", "test"), std::nullopt);
  return std::get<Plan>(std::move(outcome));
}

Problem split_as(const Problem& problem, SplitPlan plan) {
  auto made = on_mesh(problem, std::move(plan));
  REQUIRE(std::holds_alternative<Problem>(made));
  Problem split = for_planners(std::get<Problem>(std::move(made)), false, Backward::whole, "test");
  split.transformed = true;
  return split;
}

/// From two to six, whether every case is tried or every eleventh.
std::uint32_t operators_of_case(std::uint64_t seed) {
  return static_cast<std::uint32_t>(2 + seed % 5);
}

/// As the searches that halve name them.
Mesh halved(std::uint32_t devices) {
  Mesh mesh;
  for (std::uint32_t ranks = 1; ranks < devices; ranks *= 2) {
    mesh.axes.push_back({"half" + std::to_string(mesh.axes.size()), 2});
  }
  return mesh;
}

}  // namespace

// Up to six operators. The table has every way to cut each of them and prices some choices as they are worked out here;
// of all choices none costs less than what elimination and the integer program find.
TEST_CASE("the integer program's splits are the cheapest of all of a small model", "[hybrid]") {
  std::size_t visited = 0, programs = 0;
  for (const RandomCase seed : fewer_cases(1, 100)) {
    const std::uint32_t devices = 2U << (seed % 3), operators = operators_of_case(seed);
    const Problem problem = small_model(seed, operators, devices);
    const Mesh mesh{{{"devices", devices}}};
    const AllSplits all(problem, mesh);
    const auto model_or_why = BspModel::of(problem, WorkModel::symbolic);
    REQUIRE(std::holds_alternative<BspModel>(model_or_why));
    const BspModel& model = std::get<BspModel>(model_or_why);
    REQUIRE(model.operators() == operators);
    auto times = CollectiveTimes::on(problem.platform, mesh);
    const std::vector<std::vector<std::optional<std::uint8_t>>> none(operators);
    const SplitTable table = model.table(mesh, 0, 1, none, std::get<CollectiveTimes>(times));
    const auto in_table = [&](const AllSplits::Choices& choices) {
      SplitChoices made;
      for (std::size_t o = 0; o < operators; ++o) {
        const auto& known = table.choices(o);
        REQUIRE(known.size() == all.ways(o));
        const auto found = std::ranges::find(known, all.cuts(o, choices[o]), &SplitTable::Choice::cuts);
        REQUIRE(found != known.end());
        made.push_back(static_cast<std::uint32_t>(found - known.begin()));
      }
      return made;
    };
    double least = std::numeric_limits<double>::infinity();
    visited += all.visit(false, least, [&](const AllSplits::Choices& choices) {
      CHECK(table.priced(in_table(choices)).value == Approx(all.cost(choices)).epsilon(1e-9));
      least = std::min(least, all.cost(choices));
    });
    Random random(seed);
    for (int k = 0; k < 20; ++k) {
      const AllSplits::Choices any = all.any(random);
      CHECK(table.priced(in_table(any)).value == Approx(all.cost(any)).epsilon(1e-9));
      CHECK(all.cost(any) >= least);
    }
    CHECK(table.priced(eliminated(table)->choices).value == Approx(least).epsilon(1e-9));
    const ProgrammedSplit program = solve_split_program(table, swept(table, {}, 2), {.seconds = 60});
    CHECK(program.stopped.empty());
    CHECK(table.priced(program.choices).value == Approx(least).epsilon(1e-6));
    ++programs;
  }
  CAPTURE(visited, programs);
  if (all_cases()) CHECK(programs >= cases_of(std::size_t{100}));
}

// Every split over halves of the machine that could be faster than the fastest is simulated: those left out work and
// exchange longer than it takes, by a bound that is held against every one that is simulated.
TEST_CASE("no search finds splits of a small model that are faster than all", "[hybrid][eleventh-8]") {
  double slower = 0, most = 0;
  std::size_t cases = 0, runs = 0;
  for (const RandomCase seed : fewer_cases(1, 225)) {
    const std::uint32_t devices = 2U << (seed % 3), operators = operators_of_case(seed);
    const Problem problem = small_model(seed, operators, devices);
    const AllSplits all(problem, halved(devices));
    double best = std::numeric_limits<double>::infinity();
    std::vector<Seconds> found;
    std::size_t too_high = 0;
    for (const char* search : {"hsm2dl", "alpa", "optcnn", "tofu"}) {
      found.push_back(judged_time(problem, search));
      best = std::min(best, found.back().value);
    }
    double fastest = std::numeric_limits<double>::infinity();
    const auto simulate = [&](const AllSplits::Choices& choices) {
      const double makespan = stored_all(split_as(problem, all.plan(choices))).makespan.value;
      too_high += all.bound(choices) <= makespan * (1 + 1e-9) ? 0 : 1;
      fastest = std::min(fastest, makespan);
      ++runs;
    };
    // First the one with the least bound, so that little is left below the fastest.
    double least = std::numeric_limits<double>::infinity();
    AllSplits::Choices promising;
    all.visit(true, least, [&](const AllSplits::Choices& choices) {
      promising = choices;
      least = all.bound(choices);
    });
    simulate(promising);
    Random random(seed);
    for (int k = 0; k < 10; ++k) simulate(all.any(random));
    least = std::min(best * (1 + 1e-9), fastest);
    all.visit(true, least, [&](const AllSplits::Choices& choices) {
      simulate(choices);
      least = std::min(least, fastest);
    });
    CHECK(too_high == 0);
    CHECK(fastest <= best * (1 + 1e-9));  // what a search found is among all
    const double gap = found.front().value / fastest - 1;
    CAPTURE(devices, operators, gap);
    slower += gap;
    most = std::max(most, gap);
    ++cases;
  }
  CAPTURE(cases, runs, slower / static_cast<double>(cases), most);
  if (all_cases()) CHECK(slower / static_cast<double>(cases) <= 0.10);
}
