// What `cluster` may choose against what it is told to, and the bounds that leave points out: of those which move
// values, and on machines whose links are so slow that exchanges are what holds.

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/core/tolerance.h"
#include "tests/experiments/cluster_asked.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

/// One of the words, and each other one with a chance, joined by '+'.
std::string some_of(const std::vector<std::string>& words, Random& random) {
  std::string some = words[random.below(static_cast<std::uint32_t>(words.size()))];
  for (const std::string& word : words) {
    if (random.chance(0.3) && some.find(word) == std::string::npos) some += "+" + word;
  }
  return some;
}

ClusterMachine drawn_small_machine(Random& random) {
  return {.in_node = 1U << random.between(0, 1),
          .bus = random.chance(0.5) ? 10.0 : 1.0,
          .adam = random.chance(0.5) ? 2.0 : 20.0};
}

/// The fastest of a space within so much memory; nothing where nothing fits.
std::optional<Seconds> fastest_proven(const std::string& model, const ClusterMachine& machine,
                                      const std::string& options, Bytes memory) {
  const ClusterAsked asked(model, machine, 4, options, Optimizer::adam, memory);
  ClusterProblems problems(asked.question, asked.trace, asked.platform);
  ClusterQuestion question = problems.question();
  question.asks_least = false;
  const ClusterAnswer found = cluster_search(question, asked.options());
  if (!found.best) return std::nullopt;
  CHECK(found.is_proven);
  return found.rows[*found.best].outcome->makespan;
}

}  // namespace

TEST_CASE("a cluster that may choose is never slower than one that is told", "[cluster][turn-5]") {
  const std::vector<std::string> offloads{"none", "offload_greedy", "offload_fractional"};
  const std::vector<std::string> updates{"device", "backward_updates", "zero_offload", "twinflow",
                                         "deep_optimizer_states"};
  std::size_t slower = 0;
  for (const RandomCase seed : fewer_cases(1, 33, 33)) {
    Random random(seed);
    const ClusterMachine machine = drawn_small_machine(random);
    const std::string model = cluster_model(1, 32 * random.between(1, 3));
    const std::string usual = "points=100000,z=0+3,micro_batch=1,chunks=2,schedule=none+1f1b,saver=none";
    const Bytes least = least_cluster_memory(model, machine, 4, usual);
    const Bytes memory{static_cast<std::int64_t>((0.9 + random.below(8) / 20.0) * static_cast<double>(least.count))};
    const std::optional<Seconds> chosen = fastest_proven(model, machine, usual + ",offload=auto,updates=auto", memory);
    for (int k = 0; k < 3; ++k) {
      const std::string told = usual + ",offload=" + some_of(offloads, random) + ",updates=" + some_of(updates, random);
      const std::optional<Seconds> given = fastest_proven(model, machine, told, memory);
      CAPTURE(told, memory.count, machine.bus, machine.adam);
      if (chosen && (!given || *chosen < *given)) ++slower;
      if (!given) continue;
      REQUIRE(chosen);
      CHECK(chosen->value <= given->value * (1 + sum_tolerance));
    }
  }
  if (every_case()) CHECK(slower > 10U);
}

TEST_CASE("no plan that offloads is faster than the plan without that is alone on its machine",
          "[cluster][eleventh-5]") {
  std::size_t moved = 0;
  for (const RandomCase seed : fewer_cases(1, 66, 33)) {
    Random random(seed);
    ClusterMachine machine = drawn_small_machine(random);
    machine.nodes = random.between(1, 2);
    machine.within = 1.0 + random.below(20);
    const std::string model = cluster_model(random.between(1, 3), 32 * random.between(1, 4), 16 * random.between(1, 3));
    const std::string options = std::string("offload=offload_greedy+offload_fractional,saver=none+core+full,") +
                                "updates=device+backward_updates+zero_offload,micro_batch=1+2,chunks=2," +
                                "schedule=none+1f1b+gpipe+interleaved+zb_h1+zb_v";
    const Bytes least = least_cluster_memory(model, machine, 4, "micro_batch=1,chunks=2,schedule=none+1f1b");
    const Bytes memory{static_cast<std::int64_t>((0.8 + random.below(20) / 10.0) * static_cast<double>(least.count))};
    const ClusterAsked asked(model, machine, 4, options, Optimizer::adam, memory);
    ClusterProblems problems(asked.question, asked.trace, asked.platform);
    const ClusterQuestion question = problems.question();
    const ClusterAnswer all = cluster_bounds(question, asked.options());
    for (int k = 0; k < 6; ++k) {
      const ClusterRow& row = all.rows[random.below(static_cast<std::uint32_t>(all.rows.size()))];
      if (!row.point.has_fixed_updates()) continue;
      const ClusterOutcome outcome = question.outcome(row.point, row.as());
      ClusterPoint twin = row.point;
      twin.offload = 0;
      const std::optional<Seconds> alone = question.alone(twin, composed(twin, row.sequence));
      CAPTURE(row.as().text, row.point.samples, memory.count);
      if (!outcome.makespan) continue;
      REQUIRE(alone);
      CHECK(alone->value <= outcome.makespan->value * (1 + sum_tolerance));
      const std::optional<Seconds> without = question.outcome(twin, composed(twin, row.sequence)).makespan;
      if (without) CHECK(*alone <= *without);
      if (!without || *without < *outcome.makespan) ++moved;
    }
  }
  if (every_case()) CHECK(moved > 20U);
}

TEST_CASE("on devices of two speeds the answer is the fastest of all points one by one", "[cluster][eleventh-1]") {
  std::size_t by_guess = 0, simulated = 0;
  for (const RandomCase seed : fewer_cases(1, 33, 33)) {
    Random random(seed);
    const std::uint32_t nodes = random.between(1, 2), in_node = nodes == 1 ? 2 * random.between(1, 2) : 2;
    const ClusterMachine machine{.nodes = nodes,
                                 .in_node = in_node,
                                 .within = 5.0 + random.below(20),
                                 .slow = random.between(1, in_node - 1),
                                 .slow_first = random.chance(0.5)};
    const std::string model = cluster_model(random.between(1, 2), 32 * random.between(1, 4));
    const std::string options = std::string("chunks=2,micro_batch=1,schedule=none+1f1b+interleaved,points=") +
                                (random.chance(0.5) ? "100000,updates=device+backward_updates" : "100000") +
                                (random.chance(0.1) ? ",planners=none+placement" : "");
    const Bytes least = least_cluster_memory(model, machine, 4, options);
    const Bytes memory{static_cast<std::int64_t>((1 + random.below(10) / 5.0) * static_cast<double>(least.count))};
    const ClusterAsked asked(model, machine, 4, options, Optimizer::adam, memory);
    ClusterProblems problems(asked.question, asked.trace, asked.platform);
    const ClusterQuestion question = problems.question();
    const ClusterAnswer found = cluster_search(question, asked.options());
    ClusterAnswer all = cluster_bounds(question, asked.options());
    tighten(question, all.rows);
    std::optional<Seconds> best;
    for (const ClusterRow& row : all.rows) {
      const ClusterOutcome outcome = question.outcome(row.point, row.as());
      check_cluster_bounds(row, outcome);
      if (!outcome.makespan) continue;
      if (!best || *outcome.makespan < *best) best = outcome.makespan;
      ++simulated;
      by_guess += row.guess.second > row.bound ? 1 : 0;
    }
    REQUIRE(found.best);
    CHECK(found.is_proven);
    CHECK(found.rows[*found.best].outcome->makespan == best);
  }
  if (every_case()) CHECK(simulated > 350U);
  if (every_case()) CHECK(by_guess > 100U);
}

TEST_CASE("devices whose memories differ are no cluster", "[cluster]") {
  std::string text = cluster_platform({.in_node = 2, .slow = 1});
  const std::size_t second = text.rfind("memory: 1 GB");
  REQUIRE(second != text.find("memory: 1 GB"));
  const Platform platform = parse_platform(text.replace(second, 12, "memory: 2 GB"), "machine.yaml");
  const ClusterAsked asked(cluster_model(1), {}, 4, "");
  CHECK_THROWS_WITH(ClusterProblems(asked.question, asked.trace, platform),
                    "cluster: the devices of 'machine' have memories of unlike sizes");
}

TEST_CASE("no point whose saver chooses is faster than what its memory forces it to run again",
          "[cluster][eleventh-2]") {
  std::size_t simulated = 0, raised = 0, in_pipelines = 0;
  double largest_share = 0;
  for (const RandomCase seed : fewer_cases(1, 132, 33)) {
    Random random(seed);
    const ClusterMachine machine{.nodes = random.between(1, 2), .in_node = 1U << random.between(0, 2)};
    const std::string model = cluster_model(random.between(1, 6), 32 * random.between(1, 4), 16 * random.between(2, 6));
    const std::string options = "saver=rotor+greedy_recompute,schedule=none+1f1b+gpipe,micro_batch=1+2,t=1+2";
    const std::uint32_t micro_batches = 2 * random.between(1, 6);
    const Optimizer optimizer = random.chance(0.7) ? Optimizer::adam : Optimizer::none;
    const ClusterAsked free(model, machine, micro_batches, options, optimizer, Bytes{1'000'000'000'000});
    ClusterProblems of_free(free.question, free.trace, free.platform);
    const std::vector<ClusterRow> all = cluster_bounds(of_free.question(), free.options()).rows;
    for (int k = 0; k < 3; ++k) {
      ClusterRow row = all[random.below(static_cast<std::uint32_t>(all.size()))];
      tighten(of_free.question(), std::span(&row, 1));
      const ClusterOutcome whole = of_free.question().outcome(row.point, row.as());
      if (!whole.makespan) continue;
      const Bytes least = row.memory.total();
      const Bytes memory{least.count + (whole.peak - least).count * random.between(1, 9) / 10};
      const ClusterAsked asked(model, machine, micro_batches, options, optimizer, memory);
      ClusterProblems problems(asked.question, asked.trace, asked.platform);
      ClusterRow within = row;
      tighten(problems.question(), std::span(&within, 1));
      const ClusterOutcome outcome = problems.question().outcome(row.point, row.as());
      CAPTURE(memory.count);
      check_cluster_bounds(within, outcome);
      if (!outcome.makespan) continue;
      check_cluster_bounds_in_simgrid(problems, within, outcome);
      ++simulated;
      if (within.bound <= row.bound) continue;
      ++raised;
      in_pipelines += row.point.stages > 1 ? 1 : 0;
      if (*outcome.makespan > *whole.makespan) {
        largest_share = std::max(largest_share, (within.bound - row.bound) / (*outcome.makespan - *whole.makespan));
      }
    }
  }
  if (every_case()) CHECK(simulated > 150U);
  if (every_case()) CHECK(raised > 50U);
  if (every_case()) CHECK(in_pipelines > 40U);
  if (every_case()) CHECK(largest_share > 0.7);  // of what the memory costs
}

namespace {

/// The same question on links that take no time to speak of, and on slow ones.
struct SlowAndFast {
  SlowAndFast(const std::string& model, ClusterMachine machine, std::uint32_t micro_batches, const std::string& options,
              Optimizer optimizer)
      : slow(model, machine, micro_batches, options, optimizer, Bytes{1'000'000'000'000}),
        fast(model, with_fast_links(machine), micro_batches, options, optimizer, Bytes{1'000'000'000'000}) {}

  static ClusterMachine with_fast_links(ClusterMachine machine) {
    machine.within = machine.between_nodes = 1e6;
    return machine;
  }

  ClusterAsked slow, fast;
};

bool exchanges_gradients(const ClusterRow& row) {
  return row.point.alike() > 1 || row.point.context > 1;
}

double simulated_in_simgrid(const ClusterProblems& problems, const ClusterRow& row) {
  Question question = problems.of(row.point, row.as());
  question.engine = Engine::simgrid;
  const BudgetedProblem made = budgeted_problem_of(question, load_model(question.trace), problems.platform());
  const Answer found = answer(question, made.problem, std::span(&made.budget, 1)).front();
  REQUIRE(found.feasible());
  return found.metrics->makespan.value;
}

}  // namespace

TEST_CASE("no point of a cluster with slow links is faster than what its replicas exchange", "[cluster][eleventh-6]") {
  std::size_t simulated = 0, raised = 0, over_positions = 0;
  for (const RandomCase seed : fewer_cases(1, 264, 33)) {
    Random random(seed);
    const ClusterMachine machine{.nodes = random.between(1, 2),
                                 .in_node = 1U << random.between(1, 3),
                                 .between_nodes = 0.01 * random.between(1, 100),
                                 .within = 0.05 * random.between(1, 40)};
    const bool is_mixture = random.chance(0.2);
    const std::string model =
        is_mixture ? cluster_mixture(random.between(1, 3), 32 * random.between(1, 3))
                   : cluster_model(random.between(1, 5), 32 * random.between(1, 3), 16 * random.between(1, 3));
    const SlowAndFast asked(
        model, machine, 2 * random.between(1, 6),
        std::string("context=auto,copies=auto,saver=none+core+full+greedy_recompute,chunks=2+3,schedule=none+1f1b") +
            "+gpipe+interleaved+zb_h1+zb_v+dualpipe_v" + (is_mixture ? ",expert=auto" : ""),
        random.chance(0.8) ? Optimizer::adam : Optimizer::none);
    ClusterProblems problems(asked.slow.question, asked.slow.trace, asked.slow.platform),
        others(asked.fast.question, asked.fast.trace, asked.fast.platform);
    const ClusterQuestion question = problems.question();
    std::vector<ClusterRow> rows = cluster_bounds(question, asked.slow.options()).rows;
    std::erase_if(rows, [](const ClusterRow& row) { return !exchanges_gradients(row); });
    const std::vector<ClusterRow> with_fast = cluster_bounds(others.question(), asked.fast.options()).rows;
    for (int k = 0; k < 10 && !rows.empty(); ++k) {
      ClusterRow row = rows[random.below(static_cast<std::uint32_t>(rows.size()))];
      const auto same = std::ranges::find(with_fast, row.point, &ClusterRow::point);
      REQUIRE(same != with_fast.end());
      const bool is_raised = row.bound > same->bound;
      tighten(question, std::span(&row, 1));
      const ClusterOutcome outcome = question.outcome(row.point, row.as());
      CAPTURE(row.as().text, row.point.samples, machine.nodes, machine.in_node, outcome.reason);
      if (!outcome.makespan) continue;
      CHECK(row.bound.value <= outcome.makespan->value * (1 + sum_tolerance));
      CHECK(row.bound.value <= simulated_in_simgrid(problems, row) * (1 + sum_tolerance));
      ++simulated;
      raised += is_raised ? 1 : 0;
      over_positions += row.point.context > 1 ? 1 : 0;
    }
  }
  if (every_case()) CHECK(simulated > 2000U);
  if (every_case()) CHECK(raised > 1000U);
  if (every_case()) CHECK(over_positions > 500U);
}

}  // namespace plimsoll
