// Of several plans each budget gets the fastest that fits: by hand, and against a look at all of them. Of two answers
// to a budget the better one is kept, and a range of budgets is asked about once.

#include "strategies/api/front.h"

#include <catch2/catch.hpp>

#include "sim/core/partition.h"
#include "sim/model/same_tape.h"
#include "strategies/compose/parts/passes.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

TEST_CASE("a plan is kept unless another is as fast within as little", "[front]") {
  FrontOf<char> front;
  CHECK(front.at({}) == nullptr);
  front.add(Bytes{5}, Seconds{4}, 'a');
  front.add(Bytes{5}, Seconds{4}, 'b');  // no better than a
  front.add(Bytes{3}, Seconds{9}, 'c');
  front.add(Bytes{8}, Seconds{4}, 'd');  // not faster than a
  front.add(Bytes{9}, Seconds{1}, 'e');
  CHECK(front.budgets() == std::vector<Bytes>{Bytes{3}, Bytes{5}, Bytes{9}});
  CHECK(front.least() == Bytes{3});
  CHECK(front.at(Bytes{2}) == nullptr);
  CHECK(*front.at(Bytes{3}) == 'c');
  CHECK(*front.at(Bytes{8}) == 'a');
  CHECK(*front.at({}) == 'e');
  front.add(Bytes{3}, Seconds{1}, 'f');  // beats all
  CHECK(front.budgets() == std::vector<Bytes>{Bytes{3}});
  CHECK(*front.at(Bytes{9}) == 'f');
}

TEST_CASE("the plan within each budget is the fastest of all that fit, the smallest of equals, the first of those",
          "[front]") {
  struct Made {
    Bytes needs;
    Seconds makespan;
  };
  for (const RandomCase seed : random_cases(1, 300)) {
    INFO("seed " << seed);
    Random random(seed);
    std::vector<Made> made(random.between(1, 20));
    FrontOf<std::size_t> front;
    for (std::size_t k = 0; k < made.size(); ++k) {
      made[k] = {Bytes{random.between(0, 12)}, Seconds{static_cast<double>(random.between(0, 6))}};
      front.add(made[k].needs, made[k].makespan, k);
    }
    for (std::int64_t budget = 0; budget <= 12; ++budget) {
      const Made* best = nullptr;
      for (const Made& each : made) {
        if (each.needs.count > budget) continue;
        const bool is_better = best == nullptr || each.makespan < best->makespan ||
                               (each.makespan == best->makespan && each.needs < best->needs);
        if (is_better) best = &each;
      }
      const std::size_t* found = front.at(Bytes{budget});
      REQUIRE((found == nullptr) == (best == nullptr));
      if (found != nullptr) CHECK(*found == static_cast<std::size_t>(best - made.data()));
    }
  }
}

TEST_CASE("two fronts together are that of all their plans, and no plan of it beats another", "[front]") {
  for (const RandomCase seed : random_cases(1, 300)) {
    INFO("seed " << seed);
    Random random(seed);
    FrontOf<int> one, other, all;
    for (int k = 0; k < 20; ++k) {
      const Bytes needs{random.between(0, 12)};
      const Seconds makespan{static_cast<double>(random.between(0, 6))};
      (k < 10 ? one : other).add(needs, makespan, k);
      all.add(needs, makespan, k);
    }
    one.add(std::move(other));
    CHECK(one.budgets() == all.budgets());
    CHECK(std::ranges::is_sorted(one.budgets(), std::ranges::less_equal{}));
    const int* before = nullptr;
    for (const Bytes budget : one.budgets()) {
      CHECK(*one.at(budget) == *all.at(budget));
      CHECK(one.at(budget) != before);
      CHECK(one.at(budget - Bytes{1}) == before);
      before = one.at(budget);
    }
    CHECK(std::move(one).plans() == std::move(all).plans());
  }
}

TEST_CASE("the better of two answers fits, or is faster, or needs less; of equal ones the first is kept", "[front]") {
  const auto plan = [](std::int64_t peak, double seconds) {
    return TapeOutcome(PlannedTape{{}, Bytes{peak}, Seconds{seconds}, std::nullopt});
  };
  const TapeOutcome needs_9 = Infeasible{"", Bytes{9}}, needs_8 = Infeasible{"", Bytes{8}},
                    none = Infeasible{"", std::nullopt};
  const std::vector<TapeOutcome> by_merit{plan(5, 1), plan(1, 2), needs_8, needs_9, none};
  for (std::size_t a = 0; a < by_merit.size(); ++a) {
    for (std::size_t b = 0; b < by_merit.size(); ++b) {
      CAPTURE(a, b);
      CHECK(is_better(by_merit[a], by_merit[b]) == (a < b));
    }
  }
  std::vector<TapeOutcome> best{plan(5, 1), needs_9, plan(4, 2)};
  keep_better(best, {plan(3, 1), plan(7, 7), needs_8});
  CHECK(std::get<PlannedTape>(best[0]).peak == Bytes{5});
  CHECK(std::get<PlannedTape>(best[1]).peak == Bytes{7});
  CHECK(std::get<PlannedTape>(best[2]).peak == Bytes{4});
}

TEST_CASE("a gap is the time over the bound less 1", "[front]") {
  CHECK(relative_gap(Seconds{10}, Seconds{8}).value() == Approx(0.25));
  CHECK(relative_gap(Seconds{8 + 1e-13}, Seconds{8}) == 0.0);
  CHECK(relative_gap(Seconds{0}, Seconds{0}) == 0.0);
  CHECK_FALSE(relative_gap(Seconds{1}, Seconds{0}));
}

TEST_CASE("a plan is kept with the gap that the slower answer has to the best of its class", "[front]") {
  const auto plan = [](double seconds, std::optional<double> gap) {
    return TapeOutcome(PlannedTape{{}, Bytes{5}, Seconds{seconds}, gap});
  };
  TapeOutcome own = plan(10, 0.25);  // the bound is 8
  CHECK_FALSE(keep_faster_outcome(own, plan(10, 0.0)));
  CHECK(std::get<PlannedTape>(own).gap == 0.25);
  CHECK(keep_faster_outcome(own, plan(9, 0.0)));
  CHECK(std::get<PlannedTape>(own).gap == Approx(0.125));
  CHECK(keep_faster_outcome(own, plan(5, 0.0)));  // of another class
  CHECK(std::get<PlannedTape>(own).gap == 0.0);
  own = Infeasible{"", std::nullopt};
  CHECK(keep_faster_outcome(own, plan(8, 0.0)));
  CHECK_FALSE(std::get<PlannedTape>(own).gap);
  std::optional<PlannedTape> best;
  CHECK_FALSE(keep_faster(best, plan_in(TapeOutcome(Infeasible{"", std::nullopt}))));
  CHECK(keep_faster(best, plan_in(plan(8, 0.1))));
  CHECK_FALSE(keep_faster(best, plan_in(plan(8, 0.2))));
  CHECK(best->gap == 0.1);
}

struct ExampleOptions {
  bool any = true;
};

constexpr auto front_options =
    options_of<ExampleOptions>(option_of<&ExampleOptions::any>({.name = "any", .words = "off on"}));

/// Of 5 and 6 bytes, behind another pass of 4 and 5, the larger one faster.
Plans example_plans(const PartTask&, const ExampleOptions& options, const Tape* before) {
  Plans made{{}, options.any ? "needs more" : "has no plan"};
  const std::int64_t least = before == nullptr ? 5 : 4;
  for (std::int64_t k = 0; options.any && k < 2; ++k) {
    made.front.add(PlannedTape{{}, Bytes{least + k}, Seconds{static_cast<double>(2 - k)}, std::nullopt});
  }
  return made;
}

TEST_CASE("a strategy of one function for all budgets answers each and names them, or says why there are none",
          "[front]") {
  const TapeStrategy kind = planned_at_once<ExampleOptions, example_plans>({.moves_parameters = true});
  CHECK(kind.moves_parameters);
  const Problem problem = problem_of(worked_example(), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}};
  const std::vector<std::optional<Bytes>> budgets{Bytes{4}, Bytes{5}, std::nullopt};
  const Tape before;
  Options options(front_options);
  const std::vector<TapeOutcome> alone = kind.tapes(task, options, budgets, nullptr);
  CHECK(std::get<Infeasible>(alone[0]).reason == "needs more");
  CHECK(std::get<Infeasible>(alone[0]).smallest == Bytes{5});
  CHECK(std::get<PlannedTape>(alone[1]).peak == Bytes{5});
  CHECK(std::get<PlannedTape>(alone[2]).peak == Bytes{6});
  CHECK(std::get<PlannedTape>(kind.tapes(task, options, budgets, &before)[0]).peak == Bytes{4});
  CHECK(kind.candidates(task, options) == std::vector<Bytes>{Bytes{5}, Bytes{6}});
  options.change<ExampleOptions>().any = false;
  const std::vector<TapeOutcome> none = kind.tapes(task, options, budgets, nullptr);
  CHECK(std::get<Infeasible>(none[2]).reason == "has no plan");
  CHECK_FALSE(std::get<Infeasible>(none[2]).smallest);
  CHECK(kind.candidates(task, options).empty());
}

TEST_CASE("a range is asked about for its ends, and then for budgets evenly between them", "[front]") {
  CHECK(budgets_between(Bytes{10}, Bytes{20}, 3) == std::vector<Bytes>{Bytes{10}, Bytes{14}, Bytes{17}});
  CHECK(budgets_between(Bytes{10}, Bytes{20}, 0).empty());
  std::vector<std::vector<std::optional<Bytes>>> questions;
  std::optional<Bytes> least = Bytes{4};
  const Asked asked = [&](std::span<const std::optional<Bytes>> budgets) {
    questions.emplace_back(budgets.begin(), budgets.end());
    std::vector<TapeOutcome> outcomes;
    for (const std::optional<Bytes>& budget : budgets) {
      const bool fits = !budget || (least && *budget >= *least && *budget != Bytes{7});
      outcomes.push_back(Infeasible{"too little", least});
      if (fits) outcomes.back() = PlannedTape{{}, budget.value_or(Bytes{12}), Seconds{1}, std::nullopt};
    }
    return outcomes;
  };
  std::vector<Bytes> peaks;
  for (const PlannedTape& tape : asked_over_range(asked, 3).tapes) peaks.push_back(tape.peak);
  CHECK(peaks == std::vector<Bytes>{Bytes{12}, Bytes{4}, Bytes{10}});  // one fails in between
  CHECK(questions.size() == 2);
  for (const std::optional<Bytes> unknown : {std::optional<Bytes>(), std::optional(Bytes{12})}) {
    least = unknown;
    CHECK(asked_over_range(asked, 3).tapes.size() == 1);
  }
  const RangeOfTapes none = asked_over_range(
      [](std::span<const std::optional<Bytes>> budgets) {
        return std::vector<TapeOutcome>(budgets.size(), Infeasible{"no host", std::nullopt});
      },
      3);
  CHECK(none.tapes.empty());
  CHECK(none.reason == "no host");
}

TEST_CASE("passes that are asked more than once answer as if they were asked anew", "[front]") {
  std::size_t compared = 0;
  for (const RandomCase seed : random_cases(1, 22)) {
    Random random(seed);
    const Problem problem = problem_of(random_graph(seed, 3 + seed % 4), gpus({.to_host = BytesPerSecond{8}}));
    const Partition partition = one_device(problem.graph, 1, problem.platform.devices.size());
    const PartTask task{problem, partition, PartId{0}};
    for (const char* spec : {"offload_fractional", "greedy_recompute|offload_fractional"}) {
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Asked asked = asked_of_passes(task, passes);
      const std::optional<Bytes> unlimited;
      const auto most = std::get<PlannedTape>(asked(std::span(&unlimited, 1)).front());
      for (int k = 0; k < 5; ++k) {
        const std::optional<Bytes> budget =
            most.peak - Bytes{random.below(static_cast<std::uint32_t>(most.peak.count) / 3 + 1)};
        CAPTURE(spec, budget->count);
        const TapeOutcome again = asked(std::span(&budget, 1)).front(), anew = tape_of_passes(task, passes, budget);
        REQUIRE(again.index() == anew.index());
        const PlannedTape *one = std::get_if<PlannedTape>(&again), *other = std::get_if<PlannedTape>(&anew);
        if (one == nullptr) {
          CHECK(std::get<Infeasible>(again).smallest == std::get<Infeasible>(anew).smallest);
          continue;
        }
        CHECK(same(one->tape, other->tape));
        CHECK(one->peak == other->peak);
        CHECK(one->makespan == other->makespan);
        ++compared;
      }
    }
  }
  if (all_cases()) CHECK(compared > 50);
}

}  // namespace
}  // namespace plimsoll
