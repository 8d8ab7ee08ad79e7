// `snapshot` against `exact` on small problems, its memory against that of tapes, and its cuts as schedules.

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "sim/bound/trade_pieces.h"
#include "sim/measure/lower_bounds.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/models/fullest_moment.h"
#include "strategies/models/recompute_order.h"
#include "strategies/offloading/snapshot/sequence_memory.h"
#include "strategies/offloading/snapshot/snapshot_cuts.h"
#include "strategies/offloading/snapshot/snapshot_plans.h"
#include "strategies/offloading/snapshot/whole_plans.h"
#include "strategies/rematerialization/programs/checkmate_solver.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

Problem little_problem(std::uint64_t seed) {
  Random random(seed);
  const ProblemOptions options{.micro_batches = random.chance(0.7) ? 1U : 2U,
                               .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing};
  if (random.chance(0.5)) return problem_of(random_small_chain(seed, random.between(1, 4)), gpus({}), options);
  return problem_of(random_graph(seed, random.between(1, 5)), gpus({}), options);
}

TEST_CASE("snapshot is never faster than the optimum, nor its gap less than the true one",
          "[snapshot][property][eleventh-8]") {
  const std::vector<Pass> snapshot = parse_spec("snapshot(offload=no)", "test"), exact = parse_spec("exact", "test");
  std::size_t optimal = 0, plans = 0;
  for (const RandomCase seed : random_cases(1, 150)) {
    const Problem problem = little_problem(seed);
    std::vector<std::optional<Bytes>> budgets;
    for (const Bytes budget : front_budgets(problem, exact)) budgets.insert(budgets.end(), {budget, budget + Bytes{1}});
    const std::vector<PlanOutcome> made = plan(problem, snapshot, budgets), best = plan(problem, exact, budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      CAPTURE(seed, budgets[b]->count);
      const Plan *found = std::get_if<Plan>(&made[b]), *optimum = std::get_if<Plan>(&best[b]);
      REQUIRE(optimum != nullptr);
      if (found == nullptr) continue;
      ++plans;
      const double most = optimum->makespan.value * (1 + 1e-9);
      CHECK(found->peak <= *budgets[b]);
      CHECK(found->makespan.value * (1 + 1e-9) >= optimum->makespan.value);
      if (found->gap) CHECK(found->makespan.value / (1 + *found->gap) <= most);
      optimal += found->makespan.value <= most ? 1 : 0;
    }
  }
  CHECK(optimal * 10 >= plans * 7);
}

/// Each second forward runs again before the backward.
OpSequence with_repeats(const PartTask& task, const OpModel& model, Random& random) {
  Evicted evicted(model.values.size(), false);
  for (auto&& each : evicted) each = random.chance(0.5);
  return recompute_order(model, evicted).value_or(store_all_ops(task));
}

TEST_CASE("the memory of a sequence is its tape's, also when runs are left out of it", "[snapshot][property]") {
  std::size_t shorter = 0, cuts = 0;
  for (const RandomCase seed : random_cases(1, 300)) {
    CAPTURE(seed);
    Random random(seed);
    const Problem problem = little_problem(seed);
    const Partition partition = one_device(problem.graph, 1, problem.micro_batches);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OpModel model = op_model(task);
    const OpSequence sequence = with_repeats(task, model, random);
    SequenceMemory memory(model, sequence);
    const PlannedTape before = planned_ops(task, sequence);
    REQUIRE(memory.peak() == before.peak);
    const Bytes budget = before.peak + Bytes{random.between(0, 3)};
    memory.leave_out(budget);
    const PlannedTape after = planned_ops(task, memory.sequence());
    CHECK(after.peak == memory.peak());
    CHECK(after.peak <= budget);
    CHECK(after.makespan <= before.makespan);
    shorter += memory.sequence().size() < sequence.size() ? 1 : 0;
    const SequenceMemory all(model, sequence);
    const Bytes less = before.peak - Bytes{1};
    if (const auto changed = all.cut_at(all.fullest_above(less).value(), less)) {
      CHECK(SequenceMemory(model, *changed).peak() == planned_ops(task, *changed).peak);
      ++cuts;
    }
  }
  CHECK(shorter > 20);
  CHECK(cuts > 20);
}

TEST_CASE("a range's maximum is that of numbers added one by one", "[snapshot][property]") {
  for (const RandomCase seed : random_cases(1, 100)) {
    Random random(seed);
    std::vector<std::int64_t> numbers(random.between(1, 20));
    for (std::int64_t& number : numbers) number = random.between(0, 9);
    RangeMaximum most(numbers);
    for (int k = 0; k < 30; ++k) {
      const std::size_t first = random.below(static_cast<std::uint32_t>(numbers.size())),
                        last = random.between(static_cast<std::uint32_t>(first),
                                              static_cast<std::uint32_t>(numbers.size()));
      const std::int64_t add = static_cast<std::int64_t>(random.between(0, 18)) - 9;
      for (std::size_t i = first; i < last; ++i) numbers[i] += add;
      most.add(first, last, add);
      const auto greatest = std::ranges::max_element(numbers);
      CAPTURE(seed, k);
      REQUIRE(most.most() == *greatest);
      REQUIRE(most.where() == static_cast<std::size_t>(greatest - numbers.begin()));
    }
  }
}

TEST_CASE("every trade of the front of equal layers is a schedule, proven optimal", "[snapshot]") {
  const Problem problem = problem_of(even_chain(40), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  SnapshotPlans plans(task, snapshot_instants(task).front(), 1);
  REQUIRE(plans.bends().size() > 1);
  for (const SnapshotBend& bend : plans.bends()) {
    const Bytes level = plans.beside() + bend.kept;
    const std::optional<OpSequence> sequence = plans.sequence_of(bend.again);
    REQUIRE(sequence);
    const PlannedTape made = planned_ops(task, *sequence);
    CAPTURE(level.count, made.peak.count);
    CHECK(made.makespan.value == Approx(plans.bound(level).value).epsilon(1e-12));
    const OpId instant = plans.model().ops[plans.instant()].id;
    const auto run = std::ranges::find(*sequence, instant, &OpRun::op);
    CHECK(memory_of_runs(plans.model(), *sequence)[static_cast<std::size_t>(run - sequence->begin())].during == level);
  }
}

TEST_CASE("snapshot names the op that alone needs more than the budget", "[snapshot]") {
  const Problem problem = problem_of(even_chain(4), gpus({}));
  const LowerBounds bounds = lower_bounds(problem, 1);
  const std::vector<Pass> passes = parse_spec("snapshot(offload=no)", "test");
  const Infeasible none = std::get<Infeasible>(plan(problem, passes, bounds.memory - Bytes{1}));
  CHECK(none.reason.find("'" + problem.graph[*bounds.memory_by].name + "'") != std::string::npos);
  CHECK(none.reason.find(std::to_string(bounds.memory.count) + " B") != std::string::npos);
  REQUIRE(none.smallest);
  CHECK(*none.smallest >= bounds.memory);
}

TEST_CASE("of pieces those of the most seconds within the room are taken", "[snapshot][property]") {
  for (const RandomCase seed : random_cases(1, 100)) {
    Random random(seed);
    std::vector<PieceWorth> pieces(random.between(0, 8));
    for (PieceWorth& piece : pieces) {
      piece = {static_cast<std::int64_t>(random.between(0, 40)) - 2, static_cast<double>(random.between(1, 20))};
    }
    const std::int64_t room = random.between(0, 100);
    const auto sum_of = [&](std::uint32_t set) {
      PieceWorth sum;
      for (std::size_t k = 0; k < pieces.size(); ++k) {
        if ((set >> k & 1) == 0) continue;
        sum.bytes += pieces[k].bytes;
        sum.seconds += pieces[k].seconds;
      }
      return sum;
    };
    double most = 0;
    for (std::uint32_t set = 0; set < 1U << pieces.size(); ++set) {
      if (sum_of(set).bytes <= room) most = std::max(most, sum_of(set).seconds);
    }
    std::uint32_t taken = 0;
    for (const std::size_t k : worthiest(pieces, room)) taken |= 1U << k;
    CAPTURE(seed);
    CHECK(sum_of(taken).bytes <= room);
    CHECK(sum_of(taken).seconds == most);
  }
}

TEST_CASE("with more memory snapshot is never slower, and never without a plan where it had one",
          "[snapshot][property][eleventh-1]") {
  for (const std::string_view spec : {"snapshot(offload=no)", "snapshot"}) {
    const std::vector<Pass> passes = parse_spec(std::string(spec), "test");
    for (const RandomCase seed : fewer_cases(1, 60)) {
      Random random(seed);
      const Problem problem = problem_of(random_graph(seed, random.between(4, 12)),
                                         gpus({.to_host = BytesPerSecond{static_cast<double>(random.between(1, 9))}}));
      const std::int64_t least = lower_bounds(problem, 1).memory.count;
      const std::int64_t most = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), std::nullopt)).peak.count;
      std::vector<std::optional<Bytes>> budgets;
      for (std::int64_t k = 0; k <= 20; ++k) budgets.push_back(Bytes{least + (most - least) * k / 20});
      std::optional<Seconds> before;
      for (const PlanOutcome& outcome : plan(problem, passes, budgets)) {
        const Plan* made = std::get_if<Plan>(&outcome);
        CAPTURE(seed, spec);
        if (before) {
          REQUIRE(made != nullptr);
          CHECK(made->makespan <= *before);
        }
        if (made != nullptr) before = made->makespan;
      }
      CHECK(before);
    }
  }
}

/// Budgets from the largest working set to plain training's peak.
std::vector<std::optional<Bytes>> budgets_of(const Problem& problem, std::int64_t count) {
  const std::int64_t least = lower_bounds(problem, 1).memory.count;
  const std::int64_t most = std::get<Plan>(plan(problem, parse_spec("store_all", "test"), std::nullopt)).peak.count;
  std::vector<std::optional<Bytes>> budgets;
  for (std::int64_t k = 0; k <= count; ++k) budgets.push_back(Bytes{least + (most - least) * k / count});
  return budgets;
}

Seconds time_of(const PlanOutcome& outcome) {
  const Plan* made = std::get_if<Plan>(&outcome);
  return made != nullptr ? made->makespan : Seconds{std::numeric_limits<double>::infinity()};
}

TEST_CASE("snapshot is never slower than greedy_recompute, with budgets asked alone or together",
          "[snapshot][property]") {
  const std::vector<Pass> snapshot = parse_spec("snapshot(offload=no)", "test"),
                          greedy = parse_spec("greedy_recompute", "test");
  std::size_t asked = 0;
  for (const RandomCase seed : fewer_cases(1, 30)) {
    Random random(seed);
    const std::uint32_t micro_batches = 2;  // there is no search for few large values
    const Problem problem =
        problem_of(random_graph(seed, random.between(4, 16)), gpus({}), {.micro_batches = micro_batches});
    const std::vector<std::optional<Bytes>> budgets = budgets_of(problem, 12);
    const std::vector<PlanOutcome> made = plan(problem, snapshot, budgets), other = plan(problem, greedy, budgets);
    for (std::size_t b = 0; b < budgets.size(); ++b) {
      CAPTURE(seed, budgets[b]->count);
      if (b > 0) CHECK(time_of(made[b]) <= time_of(made[b - 1]));
      asked += std::holds_alternative<Plan>(other[b]) ? 1 : 0;
      CHECK(time_of(made[b]).value <= time_of(other[b]).value * (1 + 1e-12));
    }
    const std::size_t one = random.below(static_cast<std::uint32_t>(budgets.size()));
    CHECK(time_of(plan(problem, snapshot, budgets[one])) == time_of(made[one]));
  }
  if (all_cases()) CHECK(asked > 5);
}

TEST_CASE("plans of the whole iteration are those of greedy_recompute and, within half of it, of rockmate",
          "[snapshot][property]") {
  const std::vector<Pass> greedy = parse_spec("greedy_recompute", "test"), rockmate = parse_spec("rockmate", "test");
  std::size_t faster = 0;
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Random random(seed);
    const Problem problem = problem_of(random_graph(seed, random.between(20, 60)), gpus({}));
    const Partition partition = one_device(problem.graph, 1, 1);
    const PartTask task{problem, partition, PartId{0}, 1};
    const OpModel model = op_model(task);
    const std::vector<std::optional<Bytes>> budgets = budgets_of(problem, 12);
    const Bytes most = *budgets.back();
    WholePlans whole(task, model, {.floor = {}, .below = most}, [](Bytes) { return Seconds{0}; });
    const std::vector<PlanOutcome> one = plan(problem, greedy, budgets), other = plan(problem, rockmate, budgets);
    for (std::size_t b = 0; b + 1 < budgets.size(); ++b) {
      CAPTURE(seed, budgets[b]->count, most.count);
      const PlannedTape* made = whole.at(*budgets[b]);
      const bool has_blocks = 2 * budgets[b]->count < most.count || std::holds_alternative<Infeasible>(one[b]);
      const Seconds best = has_blocks ? std::min(time_of(one[b]), time_of(other[b])) : time_of(one[b]);
      CHECK((made != nullptr ? made->makespan : time_of(Infeasible{})) == best);
      faster += has_blocks && time_of(other[b]) < time_of(one[b]) ? 1 : 0;
    }
    CHECK(whole.at(most) == nullptr);
    WholePlans near(task, model, {.floor = most, .below = most}, [](Bytes) { return Seconds{0}; });
    for (std::size_t b = 0; b + 1 < budgets.size(); ++b) {
      const PlannedTape* made = near.at(*budgets[b]);
      CHECK((made != nullptr ? made->makespan : time_of(Infeasible{})) == time_of(one[b]));
    }
  }
  if (every_case()) CHECK(faster > 0);
}

TEST_CASE("plans of the whole iteration are never faster than where nobody asks for them", "[snapshot]") {
  const Problem problem = problem_of(even_chain(20), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  const OpModel model = op_model(task);
  const Bytes most = *budgets_of(problem, 1).back();
  WholePlans all(task, model, {.floor = {}, .below = most}, [](Bytes) { return Seconds{0}; });
  const Seconds fastest = all.at(most - Bytes{1})->makespan, slowest = all.at(all.least().value())->makespan;
  REQUIRE(fastest < slowest);
  WholePlans slower(task, model, {.floor = {}, .below = most}, [&](Bytes) { return slowest; });
  const PlannedTape* made = slower.at(most - Bytes{1});
  CHECK((made == nullptr || made->makespan >= slowest));
}

TEST_CASE("no schedule fits below the floor of snapshot, whatever its instant", "[snapshot][property]") {
  std::size_t reached = 0;
  for (const RandomCase seed : random_cases(1, 150)) {
    CAPTURE(seed);
    const Problem problem = little_problem(seed);
    const Partition partition = one_device(problem.graph, 1, problem.micro_batches);
    const PartTask task{problem, partition, PartId{0}, 1};
    const Bytes least = front_budgets(problem, parse_spec("exact", "test")).front();
    for (const std::uint32_t instant : snapshot_instants(task)) {
      const SnapshotPlans plans(task, instant, 1);
      CHECK(plans.floor() <= least);
      CHECK(plans.floor_with_copies() <= plans.floor());
      reached += plans.floor() == least ? 1 : 0;
    }
  }
  CHECK(reached > 50);
}

/// How often the plan runs the op that it runs most often.
std::size_t most_runs(const OpSequence& sequence) {
  std::map<std::uint32_t, std::size_t> runs;
  std::size_t most = 0;
  for (const OpRun& run : sequence) most = std::max(most, ++runs[run.op.index]);
  return most;
}

TEST_CASE("where even inputs of layers do not fit snapshot runs ops more than twice", "[snapshot]") {
  const Problem problem = problem_of(even_chain(40), gpus({}));
  const Partition partition = one_device(problem.graph, 1, 1);
  const PartTask task{problem, partition, PartId{0}, 1};
  SnapshotPlans plans(task, snapshot_instants(task).front(), 1);
  const std::vector<Pass> rotor = parse_spec("rotor", "test");
  std::size_t most = 0, found = 0;
  for (std::int64_t bytes = 80; bytes <= 300; bytes += 20) {
    const SequencedTape* made = plans.best(Bytes{bytes});
    if (made == nullptr) continue;
    ++found;
    CAPTURE(bytes);
    CHECK(made->peak <= Bytes{bytes});
    // Rotor keeps what it keeps of a stage until its backward: it may be a little slower.
    const double of_rotor = std::get<Plan>(plan(problem, rotor, Bytes{bytes})).makespan.value;
    CHECK(made->makespan.value >= 0.98 * of_rotor);
    if (bytes >= 180) CHECK(made->makespan.value <= 1.01 * of_rotor);
    CHECK(made->peak == planned_ops(task, made->sequence).peak);
    CHECK(is_runnable(plans.model(), made->sequence));
    most = std::max(most, most_runs(made->sequence));
  }
  CHECK(found >= 8);
  CHECK(most > 2);
}

/// A large value of the forward is made again for the backward only by an op whose input was overwritten in place by
/// one that runs once, and what that made is read, too.
Graph overwritten_input() {
  Graph graph;
  graph.name = "overwritten";
  const auto tensor = [&](TensorKind kind, std::int64_t bytes, std::optional<TensorId> over = {}) {
    const StorageId storage = over ? graph[*over].storage : id_at<StorageId>(graph.storages++);
    graph.tensors.push_back({.name = "t", .kind = kind, .bytes = Bytes{bytes}, .storage = storage});
    return id_at<TensorId>(graph.tensors.size() - 1);
  };
  const TensorId x = tensor(TensorKind::activation, 10), large = tensor(TensorKind::activation, 100),
                 y = tensor(TensorKind::activation, 10, x), small = tensor(TensorKind::activation, 1),
                 loss = tensor(TensorKind::gradient, 1), end = tensor(TensorKind::gradient, 1);
  const auto op = [&](const char* name, Phase phase, std::vector<TensorId> reads, TensorId makes) -> Op& {
    graph.ops.push_back(
        {.name = name, .phase = phase, .duration = Seconds{1}, .inputs = std::move(reads), .outputs = {makes}});
    return graph.ops.back();
  };
  op("first", Phase::forward, {}, x);
  op("widens", Phase::forward, {x}, large);
  Op& overwrites = op("overwrites", Phase::forward, {x}, y);
  overwrites.mutates = {x};
  overwrites.recomputable = false;
  op("joins", Phase::forward, {large, y}, small);
  op("loss", Phase::backward, {small}, loss).workspace = Bytes{100};
  op("last", Phase::backward, {loss, large, y}, end);
  return graph;
}

TEST_CASE("snapshot names the op whose inputs cannot be made again", "[snapshot]") {
  const Problem problem = problem_of(overwritten_input(), gpus({}));
  const Infeasible none = std::get<Infeasible>(plan(problem, parse_spec("snapshot(offload=no)", "test"), Bytes{130}));
  CHECK(none.reason.find("the inputs of 'widens' cannot be made again: later ops overwrite them") != std::string::npos);
  CHECK(none.smallest);
}

}  // namespace
}  // namespace plimsoll
