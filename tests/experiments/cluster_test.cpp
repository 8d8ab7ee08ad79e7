// The strategy `cluster`: its bounds against simulations, its answer against all points one by one, and what it says
// where there is none.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/study/choice/changed_platform.h"
#include "sim/core/tolerance.h"
#include "sim/io/input_error.h"
#include "sim/model/repeated_layers.h"
#include "strategies/compose/spec.h"
#include "tests/experiments/cluster_asked.h"
#include "tests/experiments/run_program.h"
#include "tests/experiments/temporary_folder.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// Drawn points of the whole space, each simulated and held against its bounds; `visit` has those that fit.
void check_drawn_points(const ClusterAsked& asked, int points, Random& random,
                        const std::function<void(const ClusterPoint&)>& visit) {
  ClusterProblems problems(asked.question, asked.trace, asked.platform);
  const ClusterQuestion question = problems.question();
  const ClusterAnswer bounded = cluster_bounds(question, asked.options());
  for (int k = 0; k < points && !bounded.rows.empty(); ++k) {
    ClusterRow row = bounded.rows[random.below(static_cast<std::uint32_t>(bounded.rows.size()))];
    tighten(question, std::span(&row, 1));
    const ClusterOutcome outcome = question.outcome(row.point, row.as());
    check_cluster_bounds(row, outcome);
    if (!outcome.makespan) continue;
    if (every_case() || k % 3 == 0) check_cluster_bounds_in_simgrid(problems, row, outcome);
    visit(row.point);
  }
}

/// But for the name of a stage that is named by its number.
void check_same_stage(Stage one, const Stage& other) {
  CAPTURE(one.name);
  if (one.name.starts_with("stage") && other.name.starts_with("stage")) one.name = other.name;
  CHECK(one == other);
}

}  // namespace

TEST_CASE("five layers tell what all layers of a model cost a rank", "[cluster]") {
  std::size_t checked = 0;
  for (const RandomCase seed : fewer_cases(1, 33, 11)) {
    Random random(seed);
    const std::uint32_t layers = random.between(6, 12);
    const bool is_mixture = random.chance(0.3);
    const ClusterMachine machine{.nodes = random.between(1, 2), .in_node = 1U << random.between(1, 3)};
    const auto asked_of = [&](const std::string& model) {
      return ClusterAsked(model, machine, 8, "context=auto,expert=auto,copies=auto,schedule=none+1f1b+zb_h1",
                          Optimizer::adam, Bytes{1'000'000'000'000});
    };
    const std::string model = is_mixture ? cluster_mixture(layers) : cluster_model(layers);
    const std::string few = is_mixture ? cluster_mixture(5) : cluster_model(5);
    const ClusterAsked whole = asked_of(model), part = asked_of(few);
    const ClusterSpace space =
        cluster_space(ClusterProblems(whole.question, whole.trace, whole.platform).extent(), whole.options());
    const auto chain_of = [&](const ClusterAsked& asked, const ComposedPoint& as, std::uint32_t micro_batches) {
      Question question = asked.question;
      question.strategy = {as.text, as.passes};
      question.micro_batches = micro_batches;
      return *std::get<Problem>(problem_of(question, asked.trace, asked.platform)).chain;
    };
    for (int k = 0; k < 6; ++k) {
      const ClusterPoint& point = space.points[random.below(static_cast<std::uint32_t>(space.points.size()))];
      if (point.stages == 1 || point.samples > 1) continue;
      const ComposedPoint as = composed_stages(point, false);
      CAPTURE(as.text, layers);
      try {
        const Chain all = chain_of(whole, as, 8);
        const std::optional<RepeatedLayers> repeated = with_layers(chain_of(part, as, 8), layers);
        REQUIRE(repeated);
        REQUIRE(repeated->chain.stages.size() == all.stages.size());
        for (std::size_t s = 0; s < all.stages.size(); ++s) check_same_stage(repeated->chain.stages[s], all.stages[s]);
        CHECK(repeated->chain.parameters == all.parameters);
        ++checked;
      } catch (const InputError&) {  // ranks cannot share it out so
      }
    }
  }
  if (all_cases()) CHECK(checked > cases_of(15U));
}

TEST_CASE("layers that are not alike are not taken for each other", "[cluster]") {
  const auto chain_of = [](const std::string& model) {
    const ClusterAsked asked(model, {.in_node = 2}, 2, "");
    Question question = asked.question;
    question.strategy = parse_pipeline("1f1b(stages=2)", "test");
    return *std::get<Problem>(problem_of(question, asked.trace, asked.platform)).chain;
  };
  CHECK_FALSE(with_layers(chain_of(cluster_model(4)), 9));
  Chain chain = chain_of(cluster_model(6));
  REQUIRE(with_layers(chain, 9));
  CHECK_FALSE(with_layers(chain, 5));
  chain.stages[5].saved += Bytes{1};  // of the third layer
  CHECK_FALSE(with_layers(chain, 9));
  CHECK_FALSE(with_layers(chain_of(cluster_mixture(7) + ",dense_layers=3"), 9));
}

TEST_CASE("no point of a cluster is faster or smaller than its bounds", "[cluster][eleventh-0]") {
  std::size_t simulated = 0;
  for (const RandomCase seed : fewer_cases(1, 110, 33)) {
    Random random(seed);
    const ClusterMachine machine{.nodes = random.between(1, 2),
                                 .in_node = 1U << random.between(0, 3),
                                 .between_nodes = 1.0 + random.below(10),
                                 .within = 5.0 + random.below(40)};
    const ClusterAsked asked(cluster_model(random.between(1, 8), 32 * random.between(1, 4), 16 * random.between(1, 4)),
                             machine, 2 * random.between(1, 12),
                             "saver=none+core+full+rotor+greedy_recompute,schedule=" +
                                 std::string("none+1f1b+gpipe+interleaved+zb_h1+zb_v+v_half+dualpipe_v") +
                                 (random.chance(0.5) ? ",context=auto" : "") +
                                 (random.chance(0.3) ? ",copies=auto" : ""),
                             random.chance(0.7) ? Optimizer::adam : Optimizer::none, Bytes{1'000'000'000'000});
    check_drawn_points(asked, 20, random, [&](const ClusterPoint&) { ++simulated; });
  }
  if (every_case()) CHECK(simulated > 1500U);
}

TEST_CASE("no point of a cluster of experts is faster or smaller than its bounds", "[cluster][eleventh-9]") {
  std::size_t simulated = 0, apart = 0;
  for (const RandomCase seed : fewer_cases(1, 44, 33)) {
    Random random(seed);
    const ClusterMachine machine{.nodes = random.between(1, 2),
                                 .in_node = 1U << random.between(1, 3),
                                 .between_nodes = 1.0 + random.below(10),
                                 .within = 5.0 + random.below(40)};
    const ClusterAsked asked(
        cluster_mixture(random.between(1, 4), 32 * random.between(1, 4)), machine, 4 * random.between(1, 6),
        std::string("expert=auto,copies=1+2,saver=none+full+rotor,schedule=none+1f1b+interleaved") + "+zb_h1+zb_v" +
            (random.chance(0.3) ? ",context=1+2" : ""),
        random.chance(0.7) ? Optimizer::adam : Optimizer::none, Bytes{1'000'000'000'000});
    check_drawn_points(asked, 15, random, [&](const ClusterPoint& point) {
      ++simulated;
      if (point.experts > 1) ++apart;
    });
  }
  if (every_case()) CHECK(simulated > 500U);
  if (every_case()) CHECK(apart > 60U);
}

TEST_CASE("no point of a cluster that moves or packs values is faster or smaller than its bounds",
          "[cluster][eleventh-8]") {
  std::size_t simulated = 0, moved = 0, raised = 0;
  for (const RandomCase seed : fewer_cases(1, 33, 33)) {
    Random random(seed);
    const ClusterMachine machine{.nodes = random.between(1, 2),
                                 .in_node = 1U << random.between(0, 2),
                                 .between_nodes = 1.0 + random.below(10),
                                 .within = 5.0 + random.below(40),
                                 .host = random.chance(0.8) ? "100 GB" : "2 MB",
                                 .bus = random.chance(0.5) ? 10 : 0.1};
    const std::string model = cluster_model(random.between(1, 4), 32 * random.between(1, 4), 16 * random.between(1, 4));
    const std::uint32_t micro_batches = 2 * random.between(1, 4);
    const std::string options =
        std::string("offload=none+offload_greedy+offload_fractional") + ",compression=none+quantize+gact+lossless," +
        "updates=device+backward_updates+zero_offload+twinflow+deep_optimizer_states," +
        "saver=none+core+full+rotor+greedy_recompute,schedule=none+1f1b+gpipe+interleaved+zb_h1+zb_v,chunks=2," +
        "micro_batch=1+2,t=1+2";
    const ClusterAsked free(model, machine, micro_batches, options, Optimizer::adam, Bytes{1'000'000'000'000});
    ClusterProblems all(free.question, free.trace, free.platform);
    const ClusterAnswer unlimited = cluster_bounds(all.question(), free.options());
    const std::int64_t needs =
        unlimited.rows[random.below(static_cast<std::uint32_t>(unlimited.rows.size()))].memory.total().count;
    const ClusterAsked asked(
        model, machine, micro_batches, options, Optimizer::adam,
        Bytes{static_cast<std::int64_t>((0.8 + random.below(20) / 10.0) * static_cast<double>(needs))});
    ClusterProblems problems(asked.question, asked.trace, asked.platform);
    const ClusterQuestion question = problems.question();
    const ClusterAnswer rows = cluster_bounds(question, asked.options());
    for (int k = 0; k < 10; ++k) {
      const std::uint32_t drawn = random.below(static_cast<std::uint32_t>(rows.rows.size()));
      ClusterRow row = rows.rows[drawn];
      const auto same = std::ranges::find(unlimited.rows, row.point, &ClusterRow::point);
      if (row.bound > same->bound) ++raised;
      tighten(question, std::span(&row, 1));
      const ClusterOutcome outcome = question.outcome(row.point, row.as());
      check_cluster_bounds(row, outcome);
      if (!outcome.makespan && !outcome.lacks_host_memory) continue;
      if (k % 3 == 0) check_cluster_bounds_in_simgrid(problems, row, outcome);  // plans again
      if (!outcome.makespan) continue;
      ++simulated;
      if (row.point.offload + row.point.compression + row.point.updates > 0) ++moved;
    }
  }
  if (every_case()) CHECK(simulated > 75U);
  if (every_case()) CHECK(moved > 60U);
  if (every_case()) CHECK(raised > 20U);
}

TEST_CASE("no plan of twinflow but that of its twin on devices is faster than its bound", "[cluster][eleventh-4]") {
  std::size_t simulated = 0, raised = 0;
  for (const RandomCase seed : fewer_cases(1, 66, 33)) {
    Random random(seed);
    const ClusterMachine machine{.nodes = random.between(1, 2),
                                 .in_node = 1U << random.between(0, 2),
                                 .bus = random.chance(0.5) ? 10 : 0.1,
                                 .adam = random.chance(0.5) ? 0.2 : 200.0};
    const std::string options = "updates=device+twinflow,saver=none+full,schedule=none+1f1b+zb_h1,micro_batch=1,t=1+2";
    const std::string model = cluster_model(random.between(1, 4), 32 * random.between(1, 4));
    const Bytes least = least_cluster_memory(model, machine, 4, options);
    const double room = 1 + random.below(10) / (random.chance(0.5) ? 2.0 : 10.0);
    const ClusterAsked asked(model, machine, 4, options, Optimizer::adam,
                             Bytes{static_cast<std::int64_t>(room * static_cast<double>(least.count))});
    ClusterProblems problems(asked.question, asked.trace, asked.platform);
    const ClusterQuestion question = problems.question();
    const ClusterAnswer all = cluster_bounds(question, asked.options());
    for (int k = 0; k < 8; ++k) {
      ClusterRow row = all.rows[random.below(static_cast<std::uint32_t>(all.rows.size()))];
      if (row.point.updates == 0) continue;
      ClusterRow with_twin = row;
      row.has_device_twin = true;
      tighten(question, std::span(&with_twin, 1));
      tighten(question, std::span(&row, 1));
      if (row.bound > with_twin.bound) ++raised;
      const ClusterOutcome outcome = question.outcome(row.point, row.as());
      ClusterPoint twin = row.point;
      twin.updates = 0;
      const ClusterOutcome on_devices = question.outcome(twin, composed(twin, row.sequence));
      if (on_devices.makespan && outcome.makespan && *on_devices.makespan <= *outcome.makespan) continue;
      check_cluster_bounds(row, outcome);
      if (outcome.makespan) ++simulated;
    }
  }
  if (every_case()) CHECK(simulated > 10U);
  if (every_case()) CHECK(raised > 0U);
}

TEST_CASE("behind a saver that chooses, offloading is tried though all fits without it", "[cluster][turn-7]") {
  const std::string model = "transformer:layers=2,width=256,heads=8,sequence=128,vocabulary=512,view=graph";
  const ClusterMachine machine{.nodes = 1, .in_node = 2};
  const std::string options = "t=1,p=1,z=0,schedule=none,saver=greedy_recompute,micro_batch=1,offload=";
  const std::int64_t least = least_cluster_memory(model, machine, 4, options + "none").count;
  std::size_t faster = 0;
  for (const std::int64_t tenths : {10, 11, 12, 13}) {
    const auto fastest = [&](const char* offload) {
      const ClusterAsked asked(model, machine, 4, options + offload, Optimizer::adam, Bytes{least * tenths / 10});
      ClusterProblems problems(asked.question, asked.trace, asked.platform);
      const ClusterAnswer found = cluster_search(problems.question(), asked.options());
      REQUIRE(found.is_proven);
      return found.rows[found.best.value()].outcome->makespan->value;
    };
    const double none = fastest("none"), moved = fastest("offload_greedy"), both = fastest("none+offload_greedy");
    CAPTURE(tenths, none, moved, both);
    CHECK(both <= std::min(none, moved) * (1 + sum_tolerance));
    faster += moved < none * (1 - sum_tolerance) ? 1 : 0;
  }
  CHECK(faster > 0);
}

TEST_CASE("the best point of a cluster is that of all points one by one", "[cluster][eleventh-3]") {
  struct Case {
    ClusterMachine machine;
    std::uint32_t layers, micro_batches;
    double room;       ///< times the least memory
    std::string more;  ///< axes that are not asked for by default
    std::string mixture = "";
  };
  const std::string usual = "points=100000,chunks=2,schedule=none+1f1b+interleaved+zb_v";
  for (const Case& each :
       {Case{{.nodes = 1, .in_node = 2}, 2, 4, 1.1, ""}, Case{{.nodes = 2, .in_node = 2}, 3, 8, 1.5, ",context=auto"},
        Case{{.nodes = 1, .in_node = 4}, 4, 8, 2, ""}, Case{{.nodes = 2, .in_node = 4}, 3, 8, 1.2, ""},
        Case{{.nodes = 1, .in_node = 4}, 3, 4, 1.3, ",context=2+4,z=0+2"},
        Case{{.nodes = 2, .in_node = 2}, 2, 8, 1.5, ",copies=1+2,z=0+2+3,p=1+2"},
        Case{{.nodes = 1, .in_node = 2}, 2, 4, 1.1, ",updates=auto,p=1+2,t=1"},
        Case{{.nodes = 1, .in_node = 2, .adam = 100}, 3, 4, 1.6, ",updates=auto,p=1+2,t=1,z=0+2"},
        Case{{.nodes = 1, .in_node = 2}, 3, 4, 1.3, ",offload=auto,saver=none+full,p=1+2,z=0+3"},
        Case{{.nodes = 1, .in_node = 2}, 3, 4, 1.2, ",compression=auto,p=1,micro_batch=1+2"},
        Case{{.nodes = 1, .in_node = 4}, 2, 8, 1.3, ",expert=1+2+4,p=1+2", cluster_mixture(2)}}) {
    CAPTURE(each.room, each.layers, each.more);
    const bool has_sizes = each.more.find("micro_batch") != std::string::npos;
    const std::string options = usual + each.more + (has_sizes ? "" : ",micro_batch=1+2+4");
    const std::string model = each.mixture.empty() ? cluster_model(each.layers) : each.mixture;
    const Bytes least = least_cluster_memory(model, each.machine, each.micro_batches, options);
    const Bytes memory{static_cast<std::int64_t>(each.room * static_cast<double>(least.count))};
    const ClusterAsked asked(model, each.machine, each.micro_batches, options, Optimizer::adam, memory);
    ClusterProblems problems(asked.question, asked.trace, asked.platform);
    const ClusterQuestion question = problems.question();
    const ClusterAnswer found = cluster_search(question, asked.options());
    ClusterAnswer all = cluster_bounds(question, asked.options());
    tighten(question, all.rows);
    std::optional<Seconds> best;
    Bytes smallest = memory;
    for (const ClusterRow& row : all.rows) {
      const ClusterOutcome outcome = question.outcome(row.point, row.as());
      check_cluster_bounds(row, outcome);
      if (outcome.makespan && (!best || *outcome.makespan < *best)) best = outcome.makespan;
      if (outcome.smallest) smallest = std::min(smallest, *outcome.smallest);
    }
    CHECK(smallest >= least);
    REQUIRE(best);
    REQUIRE(found.best);
    CHECK(found.is_proven);
    CHECK(found.gap() == 0);
    CHECK(*found.rows[*found.best].outcome->makespan == *best);
    CHECK(found.simulated < all.rows.size());
  }
}

namespace {

bool is_zero_in(const std::vector<TimePart>& parts, TimePartKind kind, double rounding, const std::string& axis = "") {
  return std::ranges::none_of(parts, [&](const TimePart& each) {
    return each.kind == kind && each.axis == axis && each.time.value > rounding;
  });
}

void check_cluster_time_parts(const ClusterPoint& point, bool has_updates, const Answer& answer) {
  using enum TimePartKind;
  const double makespan = answer.metrics->makespan.value, rounding = 1e-9 * makespan;
  double sum = 0;
  for (const TimePart& part : answer.time_parts) {
    CHECK(part.time.value >= 0);
    sum += part.time.value;
  }
  CHECK(sum == Approx(makespan).epsilon(1e-9));
  CHECK_FALSE(is_zero_in(answer.time_parts, ideal, rounding));
  const std::vector<TimePart>& parts = answer.time_parts;
  if (point.stages == 1) {
    for (const TimePartKind kind : {imbalance, fill_and_drain, waits}) CHECK(is_zero_in(parts, kind, rounding));
    CHECK(is_zero_in(parts, exchange, rounding, "pipeline"));
  }
  if (point.replicas == 1) CHECK(is_zero_in(parts, exchange, rounding, "data"));
  if (point.tensor == 1) CHECK(is_zero_in(parts, exchange, rounding, "tensor"));
  CHECK(is_zero_in(parts, exchange, rounding, "context") == (point.context == 1));
  CHECK(is_zero_in(parts, recomputation, rounding) == (point.saving().name == "none"));
  CHECK(is_zero_in(parts, updates, rounding) == !has_updates);
  CHECK(is_zero_in(parts, copies, rounding));
}

}  // namespace

TEST_CASE("the parts of the time of a cluster's point sum to it in both engines", "[cluster][eleventh-1]") {
  std::size_t checked = 0;
  for (const RandomCase seed : fewer_cases(1, 88, 33)) {
    Random random(seed);
    const ClusterMachine machine{.nodes = random.between(1, 2),
                                 .in_node = 1U << random.between(0, 3),
                                 .between_nodes = 1.0 + random.below(10),
                                 .within = 5.0 + random.below(40)};
    const bool has_updates = random.chance(0.7);
    const ClusterAsked asked(cluster_model(random.between(2, 6), 32 * random.between(1, 4), 16 * random.between(1, 4)),
                             machine, 2 * random.between(1, 8), "context=auto,saver=none+core",
                             has_updates ? Optimizer::adam : Optimizer::none, Bytes{1'000'000'000'000});
    ClusterProblems problems(asked.question, asked.trace, asked.platform);
    const ClusterAnswer bounded = cluster_bounds(problems.question(), asked.options());
    for (int k = 0; k < 5 && !bounded.rows.empty(); ++k) {
      const ClusterRow& row = bounded.rows[random.below(static_cast<std::uint32_t>(bounded.rows.size()))];
      for (const Engine engine : {Engine::event, Engine::simgrid}) {
        Question of_point = problems.of(row.point, row.as());
        of_point.engine = engine;
        CAPTURE(row.as().text, row.point.samples, written(engine));
        const BudgetedProblem made = budgeted_problem_of(of_point, load_model(of_point.trace), asked.platform);
        const Answer found = answer(of_point, made.problem, std::span(&made.budget, 1)).front();
        if (!found.feasible()) continue;
        check_cluster_time_parts(row.point, has_updates, found);
        ++checked;
      }
    }
  }
  if (every_case()) CHECK(checked > std::size_t{500});
}

TEST_CASE("a cluster is never slower with more memory, faster links, a device or axes more", "[cluster][eleventh-2]") {
  std::size_t faster = 0;
  for (const RandomCase seed : fewer_cases(1, 66, 33)) {
    Random random(seed);
    const std::string model = cluster_model(random.between(1, 4), 32 * random.between(1, 4), 16 * random.between(1, 4));
    const std::uint32_t micro_batches = 4 * random.between(1, 3);
    const std::string axes = random.chance(0.5) ? ",context=auto" : ",copies=auto";
    const std::string usual = "points=100000,chunks=2";
    const ClusterMachine machine{.nodes = random.between(1, 2),
                                 .in_node = random.between(1, 4),
                                 .between_nodes = 1.0 + random.below(10),
                                 .within = 5.0 + random.below(40)};
    const auto least = static_cast<double>(least_cluster_memory(model, machine, micro_batches, usual).count);
    const double room = 1 + random.below(10) / (random.chance(0.5) ? 2.0 : 20.0);
    const auto best = [&](const ClusterMachine& on, double rooms, const std::string& options, bool has_more) {
      ClusterAsked asked(model, on, micro_batches, options, Optimizer::adam,
                         Bytes{static_cast<std::int64_t>(std::ceil(rooms * least))});
      if (has_more) asked.platform = with_another_device(asked.platform);
      ClusterProblems problems(asked.question, asked.trace, asked.platform);
      const ClusterAnswer found = cluster_search(problems.question(), asked.options());
      REQUIRE(found.best);
      REQUIRE(found.is_proven);
      return found.rows[*found.best].outcome->makespan->value;
    };
    const double before = best(machine, room, usual, false);
    ClusterMachine within = machine, between = machine;
    within.within *= 1.1 + random.below(30) / 10.0;
    between.between_nodes *= 1.1 + random.below(30) / 10.0;
    CAPTURE(room, machine.nodes, machine.in_node, machine.within, machine.between_nodes, axes);
    for (const double now : {best(machine, room * (1 + random.below(20) / 10.0), usual, false),
                             best(within, room, usual, false), best(between, room, usual, false),
                             best(machine, room, usual, true), best(machine, room, usual + axes, false)}) {
      CHECK(now <= before * (1 + sum_tolerance));
      faster += now < before ? 1 : 0;
    }
  }
  if (every_case()) CHECK(faster > 100U);
}

TEST_CASE("a cluster is never slower with one device more", "[cluster][eleventh-2]") {
  for (const RandomCase seed : fewer_cases(1, 33, 11)) {
    Random random(seed);
    const std::string model = cluster_model(random.between(1, 4), 32 * random.between(1, 4), 16 * random.between(1, 4));
    const ClusterMachine machine{.nodes = random.between(1, 3),
                                 .in_node = random.between(1, 2),
                                 .between_nodes = 1.0 + random.below(10),
                                 .within = 1.0 + random.below(40)};
    const Optimizer optimizer = random.chance(0.7) ? Optimizer::adam : Optimizer::none;
    ClusterAsked asked(model, machine, 4 * random.between(1, 3), "points=100000,chunks=2", optimizer);
    std::optional<double> before;
    for (int more = 0; more < 4; ++more) {
      ClusterProblems problems(asked.question, asked.trace, asked.platform);
      const ClusterAnswer found = cluster_search(problems.question(), asked.options());
      REQUIRE(found.best);
      REQUIRE(found.is_proven);
      const double now = found.rows[*found.best].outcome->makespan->value;
      CAPTURE(machine.nodes, asked.platform.devices.size(), found.rows[*found.best].as().text);
      if (before) CHECK(now <= *before * (1 + sum_tolerance));
      before = now;
      asked.platform = with_another_device(asked.platform);
    }
  }
}

TEST_CASE("a cluster whose host lacks memory leaves it out, or says so where nothing else fits", "[cluster]") {
  const std::string options = "points=100000,p=1,t=1,saver=none,micro_batch=1,z=0,updates=device+zero_offload";
  const Bytes least = least_cluster_memory(cluster_model(2), {.in_node = 2}, 4, options + ",d=2");
  const auto searched = [&](const std::string& host, double room, const std::string& updates) {
    const ClusterAsked asked(cluster_model(2), {.in_node = 2, .host = host}, 4,
                             options.substr(0, options.rfind('=') + 1) + updates, Optimizer::adam,
                             Bytes{static_cast<std::int64_t>(room * static_cast<double>(least.count))});
    const AnsweredQuestion made = answered_by_cluster(asked.question, asked.trace, asked.platform);
    return std::pair(made.answer, made.question.strategy.text);
  };
  const auto is_on_host = [](const auto& found) { return found.second.find("zero_offload") != std::string::npos; };
  const auto ample = searched("100 GB", 1.01, "device+zero_offload");
  CHECK(ample.first.feasible());
  CHECK(is_on_host(ample));
  const auto small = searched("100 kB", 1.01, "zero_offload");
  CHECK_FALSE(small.first.feasible());
  CHECK(small.first.reason.find("zero_offload, 1 a micro-batch: it needs ") != std::string::npos);
  CHECK(small.first.reason.find(" B of 'host', which has 100000 B") != std::string::npos);
  const auto elsewhere = searched("100 kB", 10, "device+zero_offload");
  CHECK(elsewhere.first.feasible());
  CHECK_FALSE(is_on_host(elsewhere));
}

TEST_CASE("where nothing fits, a cluster names the least that does", "[cluster]") {
  const ClusterAsked none(cluster_model(2), {.memory = "10 kB"}, 4, "points=100000,chunks=2");
  ClusterProblems problems(none.question, none.trace, none.platform);
  const ClusterAnswer found = cluster_search(problems.question(), none.options());
  CHECK_FALSE(found.best);
  REQUIRE(found.is_least_proven);
  const auto fits = [&](Bytes memory) {
    const ClusterAsked asked(cluster_model(2), {}, 4, "points=100000,chunks=2", Optimizer::adam, memory);
    ClusterProblems other(asked.question, asked.trace, asked.platform);
    return cluster_search(other.question(), asked.options()).best.has_value();
  };
  CHECK(fits(*found.least));
  CHECK_FALSE(fits(*found.least - Bytes{1}));
  const std::optional<LeastOfCluster> least = least_of_cluster(problems, found);
  REQUIRE(least);
  CHECK(least->parameters + least->gradients + least->states + least->activations + least->workspaces == *found.least);
  const ClusterPoint& point = least->row.point;
  const std::uint32_t sharers = point.zero > 0 ? point.sharers() : 1;
  const ClusterAsked whole(cluster_model(2), {.in_node = 1}, 4, "");
  const BudgetedProblem on_one = [&] {
    Question question = whole.question;
    question.strategy = parse_pipeline("store_all", "test");
    return budgeted_problem_of(question, whole.trace, whole.platform);
  }();
  Bytes states;
  for (const Tensor& tensor : on_one.problem.graph.tensors) {
    if (tensor.kind == TensorKind::optimizer_state) states += tensor.bytes;
  }
  CHECK(least->states >= Bytes{states.count / (point.tensor * point.stages * sharers)});
  CHECK(least->states < states);
}

TEST_CASE("a cluster stops at its limit of points, and says how far the best can be", "[cluster]") {
  const ClusterAsked asked(cluster_model(4), {}, 8, "points=2,chunks=2");
  ClusterProblems problems(asked.question, asked.trace, asked.platform);
  const ClusterAnswer found = cluster_search(problems.question(), asked.options());
  const ClusterAsked more(cluster_model(4), {}, 8, "points=100000,chunks=2");
  ClusterProblems others(more.question, more.trace, more.platform);
  const ClusterAnswer proven = cluster_search(others.question(), more.options());
  CHECK(found.simulated == 2);
  REQUIRE(found.best);
  REQUIRE(proven.best);
  CHECK(proven.is_proven);
  CHECK_FALSE(found.is_proven);
  CHECK(found.bound <= *proven.rows[*proven.best].outcome->makespan);
}

namespace {

struct ClusterFiles {
  explicit ClusterFiles(const ClusterMachine& machine) : platform((folder / "machine.yaml").string()) {
    std::ofstream(platform) << cluster_platform(machine);
  }

  ProgramRun run(const std::string& command, const std::string& options, std::uint32_t micro_batches = 8,
                 const std::string& more = "") const {
    return plimsoll(command + " --trace " + cluster_model(2) + " --platform " + platform + " --strategy 'cluster" +
                    options + "' --optimizer adam --engine event --micro-batches " + std::to_string(micro_batches) +
                    " " + more);
  }

  TemporaryFolder folder;
  std::string platform;
};

}  // namespace

TEST_CASE("the answer of a cluster is that of its best point, whose schedule check takes", "[cluster][program]") {
  const ClusterFiles files({});
  const ProgramRun run = files.run("simulate", "", 8, "--json");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const nlohmann::json made = nlohmann::json::parse(run.out);
  CHECK(made["strategy"].get<std::string>().find("cluster") == std::string::npos);
  CHECK(made["gap"] == 0);
  CHECK(made["note"].get<std::string>().starts_with("proven best of "));
  CHECK(made["candidates"].size() == 20);
  const std::string again = "simulate --json --engine simgrid --trace " + made["trace"].get<std::string>() +
                            " --platform " + files.platform + " --strategy '" + made["strategy"].get<std::string>() +
                            "' --optimizer adam --micro-batches " + std::to_string(made["micro_batches"].get<int>());
  CHECK(nlohmann::json::parse(plimsoll(again).out)["makespan_s"].get<double>() ==
        Approx(made["makespan_s"].get<double>()).epsilon(1e-9));
  const std::string schedule = (files.folder / "schedule.json").string();
  REQUIRE(files.run("plan", "", 8, "-o " + schedule).exit_code == 0);
  CHECK(plimsoll("check --schedule " + schedule).exit_code == 0);
}

TEST_CASE("what a cluster answers on each axis takes the same time asked by itself",
          "[cluster][program][eleventh-10]") {
  const ClusterFiles files({});
  const std::string machine = " --platform " + files.platform + " --optimizer adam --json";
  const auto run_json = [](const std::string& command) {
    const ProgramRun run = plimsoll(command);
    INFO(command + run.err);
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const std::string mixture = cluster_mixture(2);
  for (const auto& [model, options, memory] :
       {std::tuple(cluster_model(2), "context=2", "1 GB"), std::tuple(mixture, "expert=2,d=4", "1 GB"),
        std::tuple(cluster_model(2), "copies=2,d=4,z=3", "1 GB"),
        std::tuple(cluster_model(2), "offload=offload_greedy,t=1,p=1,saver=none,z=0", "2120 kB"),
        std::tuple(cluster_model(2), "updates=zero_offload", "1 GB"),
        std::tuple(cluster_model(2), "updates=backward_updates,p=2", "1 GB"),
        std::tuple(cluster_model(2), "compression=lossless,p=1,saver=core", "1 GB")}) {
    const std::string rest = machine + " --memory '" + memory + "'";
    const nlohmann::json made = run_json("simulate --engine event --micro-batches 8 --trace " + model + rest +
                                         " --strategy 'cluster(points=20," + options + ")'");
    for (const std::string engine : {"event", "simgrid"}) {
      const nlohmann::json again =
          run_json("simulate --engine " + engine + " --trace " + made["trace"].get<std::string>() + rest +
                   " --strategy '" + made["strategy"].get<std::string>() + "' --micro-batches " +
                   std::to_string(made["micro_batches"].get<int>()));
      CHECK(again["makespan_s"].get<double>() == Approx(made["makespan_s"].get<double>()).epsilon(1e-9));
      CHECK(again["peak_bytes"] == made["peak_bytes"]);
    }
  }
}

TEST_CASE("a portfolio on several devices is as fast as the cluster that it asks", "[cluster][program][turn-5]") {
  const ClusterFiles files({.in_node = 2});
  const auto makespan = [&](const std::string& strategy) {
    const ProgramRun run = plimsoll("simulate --json --trace " + cluster_model(2) + " --platform " + files.platform +
                                    " --strategy '" + strategy + "' --optimizer adam --engine event --micro-batches 8");
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out)["makespan_s"].get<double>();
  };
  CHECK(makespan("portfolio") <= makespan("cluster(points=100)") * (1 + 1e-9));
}

TEST_CASE("a cluster refuses in one line what leaves no point", "[cluster][program]") {
  const ClusterFiles files({});
  const auto refused = [&](const std::string& options, const std::string& says) {
    const ProgramRun run = files.run("simulate", options);
    INFO(run.err);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find(says) != std::string::npos);
  };
  refused("(micro_batch=5)", "micro_batch=5 leaves no point: no such micro-batch divides a batch of 8");
  refused("(t=9)", "t=9 leaves no point: there are 4 devices");
  refused("(context=5)", "context=5 leaves no point: there are 4 devices");
  refused("(context=3)", "context=3 leaves no point: context: 's' of 'embedding' has 32 in 'tokens', which 3 ranks do");
  refused("(compression=quantize,p=2)",
          "compression=quantize leaves no point: it packs what operators keep, not stages");
  refused("(offload=pofo,saver=full)", "offload=pofo leaves no point: it chooses recomputation, too");
  refused("(expert=2)", "expert=2 leaves no point: expert: ");
  refused("(copies=2,z=1)", "copies=2 leaves no point: groups are of several replicas that share out with z=2 or z=3");
  refused("(copies=4)", "copies=4 leaves no point: groups are of several replicas that share out with z=2 or z=3");
  refused("(copies=8)", "copies=8 leaves no point: there are no devices for so many groups of replicas in a stage");
  refused("(t=3)", "t=3 leaves no point: megatron: 'a' of 'layer0.attention.qkv' has 8");
  refused("(p=90)", "p=90 leaves no point: there are 4 devices, and the model has 7 stages");
  refused("(d=3)", "d=3 leaves no point: so many replicas do not fit 4 devices and 8 samples");
  refused("(z=2,d=1)", "z=2 leaves no point: only several replicas share anything out");
  refused("(p=2,schedule=none)",
          "schedule=none leaves no point: no such pipeline has so many stages and micro-batches");
  refused("(schedule=2f2b)", "cluster.schedule: expected auto, or none, 1f1b");
  refused("|rotor",
          "cluster: it chooses the whole pass pipeline, and is asked alone by 'simulate', 'plan', 'load' and 'sweep'");
  const ProgramRun small = files.run("simulate", "", 8, "--memory '10 kB'");
  CHECK(small.exit_code == 1);
  CHECK(small.err.find("the least bound is ") != std::string::npos);
  CHECK(small.err.find(" of activations and ") != std::string::npos);
  CHECK(small.err.find(" of exchange buffers; of the plans ") != std::string::npos);
  CHECK(small.err.find(" of activations and exchange buffers, and ") != std::string::npos);
  CHECK(small.err.find("the smallest feasible budget is ") != std::string::npos);
}

TEST_CASE("a cluster says that nothing joins its nodes where all points ask for it", "[cluster][program]") {
  const ClusterFiles files({.nodes = 2, .in_node = 1});
  const std::string text = cluster_platform({.nodes = 2, .in_node = 1});
  const std::size_t link = text.find("  - {name: between,");
  std::ofstream(files.platform) << text.substr(0, link) << text.substr(text.find('\n', link) + 1);
  for (const auto& [asked, says] : {std::pair("(p=2)", "platform 'machine' has no route from 'gpu0' to 'gpu1'"),
                                    std::pair("(d=2,t=1)", "there is no way from 'gpu0' to 'gpu1'")}) {
    const ProgramRun run = files.run("simulate", asked);
    INFO(run.err);
    CHECK(run.exit_code == 1);
    CHECK(run.err.find(says) != std::string::npos);
    CHECK(run.err.find("too large") == std::string::npos);
  }
  CHECK(files.run("simulate", "").exit_code == 0);
}

}  // namespace plimsoll
