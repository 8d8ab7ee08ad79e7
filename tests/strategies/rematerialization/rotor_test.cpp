#include <catch2/catch.hpp>
#include <cmath>

#include "strategies/rematerialization/cuts/chen.h"
#include "strategies/rematerialization/rotor/rotor_conditions.h"
#include "strategies/rematerialization/rotor/rotor_exact.h"
#include "strategies/rematerialization/rotor/rotor_fronts.h"
#include "strategies/rematerialization/rotor/rotor_grid.h"
#include "strategies/rematerialization/rotor/rotor_table.h"
#include "tests/random_case.h"
#include "tests/strategies/chain_oracle.h"
#include "tests/strategies/rematerialization/published_rotor.h"

using namespace plimsoll;

namespace {

constexpr std::size_t enough_points = 100000;  // for the tests' small sizes: no front is rounded

Bytes store_all_peak(const ChainModel& model) {
  return evaluate(model, store_all_sequence(model.stages())).peak;
}

// Slots of a byte: nothing is rounded.
RotorTable table_of_bytes(const ChainModel& model) {
  return {model, Bytes{1}, store_all_peak(model)};
}

// The time of a legal sequence within its budget; -1 if there is none.
double time_within(const ChainModel& model, const std::optional<ChainSequence>& sequence, Bytes budget) {
  if (!sequence) return -1;
  const ChainCost cost = evaluate(model, *sequence);
  INFO(to_string(*sequence));
  REQUIRE(cost.violation == "");
  REQUIRE(cost.peak <= budget);
  return cost.time.value;
}

double time_within(const ChainModel& model, const std::optional<ExactPlan>& plan, Bytes budget) {
  return plan ? time_within(model, std::optional(plan->sequence), budget) : -1;
}

// Sizes in megabytes and times in milliseconds, none of them round.
ChainModel real_size_chain(std::size_t stages, std::uint64_t seed) {
  ChainModel model = random_chain_model({.stages = stages,
                                         .largest_size = 50'000'000,
                                         .largest_workspace = 20'000'000,
                                         .largest_time = 100'000,
                                         .zero_percent = 3,
                                         .once_percent = 0,
                                         .keeps_percent = 85,
                                         .early_percent = 0},
                                        seed);
  for (auto* times : {&model.forward, &model.nograd, &model.backward}) {
    for (Seconds& s : *times) s = 1e-6 * s;
  }
  return model;
}

ChainModel uniform_chain(std::size_t stages, Bytes boundary, Bytes inner) {
  ChainModel model = random_chain_model({.stages = stages}, 1);
  model.resident = Bytes{0};
  model.x.assign(stages + 1, boundary);
  model.x.back() = Bytes{0};
  model.saved.assign(stages, boundary + inner);
  model.saved.back() = Bytes{0};
  model.input_gradient.assign(stages, boundary);
  model.forward_workspace = model.nograd_workspace = model.backward_workspace = std::vector<Bytes>(stages, Bytes{1000});
  model.new_gradients.assign(stages, Bytes{0});
  model.forward = model.nograd = std::vector<Seconds>(stages, Seconds{1});
  model.backward.assign(stages, Seconds{2});
  model.recomputable.assign(stages, true);
  model.keeps_input = model.keeps_output = model.recomputable;
  return model;
}

}  // namespace

TEST_CASE("rotor gives the worked example's times at every budget", "[rotor]") {
  const ChainModel model = worked_example_model();
  const RotorTable table = table_of_bytes(model);
  const RotorExact exact(model);
  CHECK(table.smallest_feasible() == Bytes{20});
  CHECK(exact.smallest_feasible() == Bytes{20});
  CHECK(exact.store_all_peak() == Bytes{22});
  for (std::int64_t budget = 0; budget < 30; ++budget) {
    CAPTURE(budget);
    const double expected = budget >= 22 ? 7 : budget >= 20 ? 8 : -1;
    CHECK(time_within(model, table.solve(Bytes{budget}), Bytes{budget}) == expected);
    CHECK(time_within(model, exact.solve(Bytes{budget}), Bytes{budget}) == expected);
  }
  CHECK(*table.solve(Bytes{22}) == store_all_sequence(3));
}

TEST_CASE("rotor equals the recursion as written at every budget of small chains", "[rotor][property]") {
  for (const RandomCase seed : fewer_cases(0, 1999)) {
    const ChainModel model = random_chain_model({.stages = 1 + seed % 9, .keeps_percent = 75}, seed);
    const RotorTable table = table_of_bytes(model);
    const RotorFronts fronts(model, FrontRounding::up, enough_points);
    const RotorExact exact(model);
    REQUIRE(fronts.exact());
    double last = -1;
    std::optional<std::int64_t> least;
    std::vector<Bytes> falls;
    for (std::int64_t budget = 0; budget <= store_all_peak(model).count + 2; ++budget) {
      CAPTURE(seed, budget);
      const double expected = persistent_optimum(model, budget).value_or(-1);
      REQUIRE(time_within(model, table.solve(Bytes{budget}), Bytes{budget}) == expected);
      REQUIRE(time_within(model, fronts.solve(Bytes{budget}), Bytes{budget}) == expected);
      REQUIRE(time_within(model, exact.solve(Bytes{budget}), Bytes{budget}) == expected);
      REQUIRE(exact.lower_bound(Bytes{budget}).value_or(Seconds{-1}).value == expected);
      if (last >= 0) REQUIRE((expected >= 0 && expected <= last));
      if (!least && expected >= 0) least = budget;
      if (expected >= 0 && (expected < last || last < 0 || budget == store_all_peak(model).count)) {
        falls.push_back(Bytes{budget});
      }
      last = expected;
    }
    CAPTURE(seed);
    REQUIRE(exact.steps() == falls);
    REQUIRE(least);
    REQUIRE(table.smallest_feasible() == Bytes{*least});
    REQUIRE(exact.smallest_feasible() == Bytes{*least});
    const LeastMemory memory = rotor_least_memory(model);
    REQUIRE(memory.budget == Bytes{*least});
    REQUIRE(time_within(model, std::optional(memory.sequence), memory.budget) >= 0);
  }
}

TEST_CASE("the least memory counts every forward of a run, also one whose workspace is larger than the last one's",
          "[rotor]") {
  for (const RandomCase seed : fewer_cases(0, 499)) {
    ChainModel model = random_chain_model({.stages = 3 + seed % 5, .keeps_percent = 75}, seed);
    for (std::size_t i = 0; i < model.stages(); ++i) {
      model.nograd_workspace[i] = Bytes{static_cast<std::int64_t>((seed * 7 + i * i * 11) % 25)};
    }
    const LeastMemory least = rotor_least_memory(model);
    CHECK(time_within(model, std::optional(least.sequence), least.budget) >= 0);
  }
}

TEST_CASE("rotor is never faster than the best of all sequences, nor does it need less memory", "[rotor][property]") {
  int budgets = 0, beaten = 0;
  for (const RandomCase seed : fewer_cases(0, 399)) {
    const ChainModel model = random_chain_model({.stages = 2 + seed % 4, .keeps_percent = 75}, seed);
    const RotorExact exact(model);
    for (std::int64_t budget = 0; budget <= store_all_peak(model).count; ++budget) {
      CAPTURE(seed, budget);
      const std::optional<double> best = unrestricted_optimum(model, budget);
      const std::optional<ExactPlan> plan = exact.solve(Bytes{budget});
      if (!plan) continue;
      REQUIRE(best);
      REQUIRE(plan->time.value >= *best);
      ++budgets;
      if (plan->time.value > *best) ++beaten;
    }
  }
  // Keeping what a sub-problem stored until its backward costs little.
  if (all_cases()) CHECK(budgets > cases_of(2000));
  if (all_cases()) CHECK(beaten < budgets / 4);
}

TEST_CASE("a table of few slots keeps its budgets, is never better than exact, and falls with the budget",
          "[rotor][property]") {
  for (const RandomCase seed : random_cases(0, 299)) {
    const ChainModel model =
        random_chain_model({.stages = 3 + seed % 20, .largest_size = 1000, .keeps_percent = 75}, seed);
    const std::int64_t slots = 5 + static_cast<std::int64_t>(seed % 60);
    const RotorTable table(model, slot_for(model, store_all_peak(model), slots), store_all_peak(model));
    const RotorExact exact(model);
    double last = 1e300;
    for (std::int64_t step = 0; step <= 40; ++step) {
      const Bytes budget{model.resident.count + (store_all_peak(model) - model.resident).count * step / 40};
      CAPTURE(seed, slots, budget.count);
      const double slow = time_within(model, table.solve(budget), budget);
      const double best = time_within(model, exact.solve(budget), budget);
      const double base = evaluate(model, store_all_sequence(model.stages())).time.value;
      REQUIRE((slow < 0) == (budget < table.smallest_feasible()));
      if (slow < 0) continue;
      REQUIRE(best >= 0);
      REQUIRE(best <= slow);
      REQUIRE(slow <= last);
      REQUIRE(base + table.recompute(budget)->value == slow);
      last = slow;
      const Seconds recompute = *table.recompute(budget);
      const RotorTable limited(model, slot_for(model, store_all_peak(model), slots), budget, recompute);
      REQUIRE(limited.recompute(budget) == recompute);
      if (recompute > Seconds{0}) {
        const RotorTable less(model, slot_for(model, store_all_peak(model), slots), budget, 0.999 * recompute);
        REQUIRE(!less.recompute(budget));
      }
    }
    REQUIRE(table.solve(table.smallest_feasible()));
    REQUIRE(!table.solve(table.smallest_feasible() - Bytes{1}));
  }
}

TEST_CASE("with slots rotor is never slower than the published program, and neither is its table",
          "[rotor][property]") {
  int compared = 0, faster = 0;
  for (const RandomCase seed : fewer_cases(0, 239)) {
    const bool multiples = seed % 3 == 0;  // of a slot: the published program then rounds little
    ChainModel model = random_chain_model({.stages = 2 + seed % 59,
                                           .largest_size = multiples ? 6 : 1'000'000,
                                           .largest_workspace = multiples ? 4 : 300'000,
                                           .once_percent = 0},
                                          seed);
    const std::int64_t slots = 20 + static_cast<std::int64_t>(seed * 7 % 90);
    const RotorSlots rotor(model, slots);
    const Bytes most = store_all_peak(model);
    for (std::int64_t step = 1; step < 8; ++step) {
      const Bytes budget{most.count * (step + 2) / 10};
      CAPTURE(seed, slots, budget.count);
      const std::optional<double> published = published_rotor(model, budget.count, slots);
      if (!published) continue;
      REQUIRE(time_within(model, rotor.solve(budget), budget) <= *published * (1 + 1e-12));
      const RotorTable table(model, slot_for(model, budget, slots), budget);
      const double rounded = time_within(model, table.solve(budget), budget);
      REQUIRE(rounded >= 0);
      REQUIRE(rounded <= *published * (1 + 1e-12));
      ++compared;
      faster += rounded < *published * (1 - 1e-12) ? 1 : 0;
    }
  }
  if (all_cases()) CHECK(compared > cases_of(500));
  if (all_cases()) CHECK(faster < compared);  // where nothing is rounded they agree
}

TEST_CASE("a grid rounded down bounds every plan, and what follows an estimate keeps its budget to the byte",
          "[rotor][property]") {
  for (const RandomCase seed : fewer_cases(0, 399)) {
    const ChainModel model =
        random_chain_model({.stages = 1 + seed % 30, .largest_size = 1000, .keeps_percent = 75}, seed);
    const GridPoints points{.inner = 1 + static_cast<std::int64_t>(seed % 13),
                            .last = 1 + static_cast<std::int64_t>(seed * 5 % 71)};
    const RotorGrid bound(model, GridRounding::down, points), estimate(model, GridRounding::nearest, points);
    const RotorExact exact(model);
    const double base = evaluate(model, store_all_sequence(model.stages())).time.value;
    REQUIRE(std::min(bound.smallest_feasible(), exact.store_all_peak()) == exact.smallest_feasible());
    for (std::int64_t step = 0; step <= 60; ++step) {
      const Bytes least = exact.smallest_feasible();
      const Bytes budget{least.count + (exact.store_all_peak() - least).count * step / 60};
      if (budget >= exact.store_all_peak()) continue;
      CAPTURE(seed, points.inner, points.last, budget.count);
      const double best = time_within(model, exact.solve(budget), budget);
      REQUIRE(bound.recompute(budget));
      REQUIRE(base + bound.recompute(budget)->value <= best);
      REQUIRE(time_within(model, std::optional(estimate.follow(budget)), budget) >= best * (1 - 1e-12));
    }
  }
}

TEST_CASE("a grid of single bytes is exact but for single precision", "[rotor][property]") {
  for (const RandomCase seed : fewer_cases(0, 499)) {
    const ChainModel model = random_chain_model({.stages = 1 + seed % 12, .keeps_percent = 75}, seed);
    const RotorGrid bound(model, GridRounding::down, {100'000, 100'000});
    const RotorGrid estimate(model, GridRounding::nearest, {100'000, 100'000});
    const double base = evaluate(model, store_all_sequence(model.stages())).time.value;
    for (std::int64_t budget = 0; budget < store_all_peak(model).count; ++budget) {
      CAPTURE(seed, budget);
      const std::optional<double> best = persistent_optimum(model, budget);
      REQUIRE(bound.recompute(Bytes{budget}).has_value() == best.has_value());
      if (!best) continue;
      REQUIRE(base + bound.recompute(Bytes{budget})->value == Approx(*best).epsilon(1e-4));
      REQUIRE(time_within(model, std::optional(estimate.follow(Bytes{budget})), Bytes{budget}) == *best);
    }
  }
}

TEST_CASE("rounded fronts enclose the exact one", "[rotor][property]") {
  for (const RandomCase seed : random_cases(0, 199)) {
    const ChainModel model =
        random_chain_model({.stages = 5 + seed % 20, .largest_size = 1000, .keeps_percent = 75}, seed);
    const std::size_t points = 2 + seed % 9;
    const RotorFronts exact(model, FrontRounding::up, enough_points);
    const RotorFronts slow(model, FrontRounding::up, points);
    const RotorFronts fast(model, FrontRounding::down, points);
    const double base = evaluate(model, store_all_sequence(model.stages())).time.value;
    REQUIRE(slow.smallest_feasible() == exact.smallest_feasible());
    for (std::int64_t step = 0; step <= 40; ++step) {
      const Bytes least = exact.smallest_feasible();
      const Bytes budget{least.count + (store_all_peak(model) - least).count * step / 40};
      CAPTURE(seed, points, budget.count);
      REQUIRE(fast.recompute(budget).value() <= exact.recompute(budget).value());
      REQUIRE(exact.recompute(budget).value() <= slow.recompute(budget).value());
      REQUIRE(time_within(model, slow.solve(budget), budget) <= base + slow.recompute(budget)->value);
    }
  }
}

// The peers' defects, each with a chain on which it shows.

TEST_CASE("rotor handles sizes of 0", "[rotor]") {
  // A checkpoint that costs nothing: O(j, l, m - 0) must be known before O(i, l, m).
  for (const RandomCase seed : random_cases(0, 199)) {
    const ChainModel model =
        random_chain_model({.stages = 6, .largest_size = 3, .zero_percent = 70, .keeps_percent = 75}, seed);
    const RotorTable table = table_of_bytes(model);
    for (std::int64_t budget = 0; budget <= store_all_peak(model).count; ++budget) {
      CAPTURE(seed, budget);
      REQUIRE(time_within(model, table.solve(Bytes{budget}), Bytes{budget}) ==
              persistent_optimum(model, budget).value_or(-1));
    }
  }
  ChainModel nothing = worked_example_model();
  nothing.x.assign(4, Bytes{0});
  for (auto* sizes : {&nothing.saved, &nothing.input_gradient, &nothing.forward_workspace, &nothing.nograd_workspace,
                      &nothing.backward_workspace}) {
    sizes->assign(3, Bytes{0});
  }
  CHECK(table_of_bytes(nothing).solve(Bytes{0}) == store_all_sequence(3));
  CHECK(RotorExact(nothing).smallest_feasible() == Bytes{0});
}

TEST_CASE("the forward of a saving stage counts the gradient of the sub-chain's end", "[rotor]") {
  // At 34 bytes store_all fails in S2 (7 + 7 + 21 = 35). F0 F1 S2 S3 B3 B2 S0 S1 B1 B0 does without saved(0) and
  // saved(1) there, but its S0 runs beside x_0 and the gradient of x_2, not of x_1: 7 + 5 + 2 + 23 = 37, not 34.
  ChainModel model = worked_example_model();
  model.x = {{7}, {2}, {5}, {0}, {0}};
  model.saved = {{2}, {5}, {0}, {0}};
  model.input_gradient = {{7}, {2}, {5}, {0}};
  model.forward_workspace = {{23}, {8}, {21}, {0}};
  model.nograd_workspace = {{23}, {4}, {0}, {0}};
  model.backward_workspace = model.new_gradients = std::vector<Bytes>(4);
  model.forward = model.nograd = {{3}, {0}, {4}, {0}};
  model.backward = {{1}, {0}, {5}, {3}};
  model.recomputable = model.keeps_input = model.keeps_output = std::vector<bool>(4, true);
  REQUIRE(evaluate(model, store_all_sequence(4)).peak == Bytes{35});
  REQUIRE(evaluate(model, {{ChainStep::Kind::forward, 0},
                           {ChainStep::Kind::forward, 1},
                           {ChainStep::Kind::forward_saving, 2},
                           {ChainStep::Kind::forward_saving, 3},
                           {ChainStep::Kind::backward, 3},
                           {ChainStep::Kind::backward, 2},
                           {ChainStep::Kind::forward_saving, 0},
                           {ChainStep::Kind::forward_saving, 1},
                           {ChainStep::Kind::backward, 1},
                           {ChainStep::Kind::backward, 0}})
              .peak == Bytes{37});
  for (std::int64_t budget = 0; budget <= 40; ++budget) {
    CAPTURE(budget);
    const double expected = persistent_optimum(model, budget).value_or(-1);
    CHECK(time_within(model, table_of_bytes(model).solve(Bytes{budget}), Bytes{budget}) == expected);
    CHECK(time_within(model, RotorExact(model).solve(Bytes{budget}), Bytes{budget}) == expected);
  }
}

TEST_CASE("a budget below the network's input has no answer", "[rotor]") {
  ChainModel model = worked_example_model();
  model.resident = Bytes{100};
  for (const std::int64_t budget : {-5, 0, 3, 99, 100, 103}) {
    CHECK(!table_of_bytes(model).solve(Bytes{budget}));
    CHECK(!RotorExact(model).solve(Bytes{budget}));
    CHECK(!RotorExact(model).lower_bound(Bytes{budget}));
  }
}

TEST_CASE("every forward of a run that keeps nothing is tested, not only the last", "[rotor]") {
  ChainModel model = uniform_chain(6, Bytes{1}, Bytes{3});
  for (auto* sizes : {&model.forward_workspace, &model.nograd_workspace, &model.backward_workspace}) {
    sizes->assign(6, Bytes{0});
  }
  model.nograd_workspace[1] = Bytes{30};
  for (std::int64_t budget = 0; budget <= store_all_peak(model).count; ++budget) {
    CAPTURE(budget);
    CHECK(time_within(model, table_of_bytes(model).solve(Bytes{budget}), Bytes{budget}) ==
          persistent_optimum(model, budget).value_or(-1));
  }
}

TEST_CASE("the base case counts the gradient of the first input", "[rotor]") {
  ChainModel model = worked_example_model();
  model.input_gradient[0] = Bytes{50};  // B0: x_0 4, saved 7, gradients 3 and 50, workspace 2
  CHECK(RotorExact(model).smallest_feasible() == Bytes{66});
  CHECK(table_of_bytes(model).smallest_feasible() == Bytes{66});
}

TEST_CASE("at store_all's peak nothing is recomputed, however few the slots", "[rotor]") {
  const ChainModel model = real_size_chain(30, 7);
  const Bytes peak = store_all_peak(model);
  const RotorTable table(model, slot_for(model, peak, 10), peak);
  CHECK(table.solve(peak) == store_all_sequence(30));
  CHECK(table.solve(2 * peak) == store_all_sequence(30));
}

TEST_CASE("exact rotor is never worse than chen on uniform chains", "[rotor]") {
  const std::size_t stages = GENERATE(std::size_t{13}, std::size_t{25}, std::size_t{50}, std::size_t{97});
  const ChainModel model = uniform_chain(stages, Bytes{1'048'577}, Bytes{11'000'003});
  const RotorExact exact(model);
  for (std::size_t segments = 1; segments < stages; ++segments) {
    CAPTURE(stages, segments);
    const ChainCost chen = evaluate(model, chen_sequence(stages, segments));
    const std::optional<ExactPlan> plan = exact.solve(chen.peak);
    REQUIRE(plan);
    CHECK(time_within(model, plan, chen.peak) <= chen.time.value);
    CHECK(plan->gap() == 0);
  }
}

TEST_CASE("large chains: budgets are kept, times fall, table and exact enclose the optimum", "[rotor][property]") {
  const std::size_t stages = GENERATE(std::size_t{40}, std::size_t{74}, std::size_t{120});
  const ChainModel model = real_size_chain(stages, stages);
  const RotorTable table(model, slot_for(model, store_all_peak(model), 500), store_all_peak(model));
  const RotorGrid below(model, GridRounding::down, {64, 1024});
  const RotorExact exact(model);
  const double base = evaluate(model, store_all_sequence(stages)).time.value;
  const Bytes least = exact.smallest_feasible();
  CHECK(least <= table.smallest_feasible());
  CHECK(time_within(model, exact.solve(least), least) > base);
  CHECK(!exact.solve(least - Bytes{1}));
  double last = 1e300;
  for (std::int64_t step = 0; step <= 20; ++step) {
    const Bytes budget{least.count + (exact.store_all_peak() - least).count * step / 20};
    CAPTURE(stages, step);
    const std::optional<ExactPlan> plan = exact.solve(budget);
    const double time = time_within(model, plan, budget);
    REQUIRE(time >= base);
    REQUIRE(time <= last + 1e-9);
    REQUIRE(plan->gap() < 1e-12);
    if (step < 20) REQUIRE(base + below.recompute(budget)->value <= time + 1e-9);
    const double slots = time_within(model, table.solve(budget), budget);
    if (slots >= 0) REQUIRE(slots + 1e-9 >= time);
    last = time;
  }
  CHECK(last == base);
}

TEST_CASE("chains too long to be solved exactly are answered within a proven part of the optimum", "[rotor]") {
  const ChainModel model = real_size_chain(longest_exact_chain + 1, 3);
  const RotorExact exact(model);
  const Bytes least = exact.smallest_feasible();
  CHECK(least == rotor_least_memory(model).budget);
  CHECK(!exact.solve(least - Bytes{1}));
  CHECK(exact.steps().front() == least);
  CHECK(exact.steps().back() == exact.store_all_peak());
  double last = 1e300;
  for (std::int64_t step = 0; step <= 10; ++step) {
    const Bytes budget{least.count + (exact.store_all_peak() - least).count * step / 10};
    CAPTURE(step);
    const std::optional<ExactPlan> plan = exact.solve(budget);
    REQUIRE(plan);
    REQUIRE(time_within(model, plan, budget) == plan->time.value);
    REQUIRE(plan->lower_bound <= plan->time);
    CHECK(plan->gap() < (step == 0 ? 0.03 : 0.001));
    CHECK(plan->time.value <= last);
    last = plan->time.value;
  }
}

TEST_CASE(
    "plans at levels are near the exact ones, fall with the budget, and their steps say what a budget is answered",
    "[rotor][property]") {
  for (const std::size_t stages : {5, 23, 60, 100}) {
    const ChainModel model = real_size_chain(stages, stages);
    const RotorExact exact(model), levels(model, {}, 0);
    REQUIRE(levels.smallest_feasible() == exact.smallest_feasible());
    const std::vector<Bytes> steps = levels.steps();
    double last = 1e300;
    for (std::size_t k = 0; k < steps.size(); k += 1 + steps.size() / 100) {
      CAPTURE(stages, k, steps[k].count);
      const double time = time_within(model, levels.solve(steps[k]), steps[k]);
      REQUIRE(time < last);
      last = time;
      const double best = time_within(model, exact.solve(steps[k]), steps[k]);
      REQUIRE(time >= best * (1 - 1e-12));
      REQUIRE(levels.lower_bound(steps[k])->value <= best);
      CHECK(time <= best * 1.003);
      if (k + 1 == steps.size()) continue;
      const Bytes between{(steps[k].count + steps[k + 1].count) / 2};
      REQUIRE(time_within(model, levels.solve(between), between) == time);
    }
  }
}

TEST_CASE("rotor asked for some budgets gives the sequences that it gives when it may be asked for any",
          "[rotor][property][eleventh-7]") {
  for (const std::size_t stages : {6, 31, 75}) {
    for (const RandomCase seed : random_cases(0, 5)) {
      const ChainModel model = seed % 2 == 0
                                   ? real_size_chain(stages, seed)
                                   : random_chain_model({.stages = stages, .keeps_percent = 75}, seed);  // many ties
      const RotorExact any(model);
      const Bytes least = any.smallest_feasible();
      std::vector<Bytes> budgets;
      for (const std::int64_t percent : {0, 1, 7, 20, 45, 80, 99, 100}) {
        budgets.push_back(least + Bytes{(any.store_all_peak() - least).count * percent / 100});
      }
      budgets.insert(budgets.end(), {least - Bytes{1}, any.store_all_peak() + Bytes{1}});
      for (std::size_t b = 0; b < budgets.size(); ++b) {
        CAPTURE(stages, seed, budgets[b].count);
        const std::optional<ExactPlan> expected = any.solve(budgets[b]);
        const std::size_t more = std::min<std::size_t>(b % 3, budgets.size() - 1 - b);
        const RotorExact some(model, std::span(budgets).subspan(b, 1 + more));
        const std::optional<ExactPlan> plan = some.solve(budgets[b]);
        REQUIRE(plan.has_value() == expected.has_value());
        REQUIRE(some.smallest_feasible() == least);
        if (!plan) continue;
        REQUIRE(to_string(plan->sequence) == to_string(expected->sequence));
        REQUIRE(plan->lower_bound.value == expected->lower_bound.value);
      }
    }
  }
}
