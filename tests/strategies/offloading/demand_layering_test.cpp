// Parameters streamed layer by layer: closed forms for equal layers, and rules on random problems.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "tests/strategies/judged_plan.h"

namespace plimsoll {
namespace {

constexpr Bytes layer{8};  // of parameters

/// n layers of 1 s forward and 2 s backward with nothing but parameters in memory, and a loss of no time.
Chain layers(std::size_t n) {
  Chain chain = even_chain(n);
  chain.input = Bytes{0};
  for (std::size_t s = 0; s <= n; ++s) {
    chain.stages[s].output = chain.stages[s].saved = chain.stages[s].input_gradient = Bytes{0};
    if (s == n) break;
    chain.stages[s].parameters = {static_cast<std::uint32_t>(s)};
    chain.parameters.push_back({"w" + std::to_string(s), layer});
  }
  return chain;
}

/// A machine on which a layer's parameters take `copy` s to or from the device, `read` s from the disk, and 2 s to
/// update on the host.
Platform machine(double copy, double read) {
  const auto bytes = static_cast<double>(layer.count);
  return gpus({.to_host = {bytes / copy}, .adam = BytesPerSecond{4}, .to_disk = BytesPerSecond{bytes / read}});
}

double seconds(const Problem& problem, const std::string& spec) {
  return judged(problem, spec).makespan.value;
}

// n t of copies and n of compute take turns on demand; two buffers hide the shorter one but for the first copy of each
// pass. The last gradient leaves in t more.
TEST_CASE("demand_layering takes the longer of copy and compute a layer, and both on demand", "[layering]") {
  for (const std::size_t n : {std::size_t{3}, std::size_t{8}, std::size_t{20}}) {
    const auto layers_n = static_cast<double>(n);
    for (const double copy : {0.25, 0.5, 1.0}) {
      const Problem problem = problem_of(layers(n), machine(copy, 1));
      CHECK(seconds(problem, "demand_layering(lead=0)") == Approx(layers_n * (2 * copy + 3) + copy));
      CHECK(seconds(problem, "demand_layering(lead=1)") == Approx(layers_n * 3 + 2 * copy + copy));
    }
    for (const double copy : {2.0, 3.0, 5.0}) {  // all copies one behind the other
      const Problem problem = problem_of(layers(n), machine(copy, 1));
      CHECK(seconds(problem, "demand_layering(lead=0)") == Approx(layers_n * (2 * copy + 3) + copy));
      CHECK(seconds(problem, "demand_layering(lead=1)") == Approx(layers_n * 2 * copy + 1 + 2 + copy));
    }
  }
}

TEST_CASE("from a disk the slowest of read, copy and compute counts", "[layering]") {
  for (const std::size_t n : {std::size_t{4}, std::size_t{12}}) {
    const Problem problem = problem_of(layers(n), machine(0.5, 3));
    CHECK(seconds(problem, "demand_layering(lead=1, from=disk)") ==
          Approx(static_cast<double>(n) * 2 * 3 + 2 * 0.5 + 1 + 2 + 0.5));
  }
}

// On demand: one layer, and its gradient, or the one before that is leaving. With two buffers: two layers, one gradient
// that is new and one that is leaving. Plain training holds all.
TEST_CASE("demand_layering's memory is its window, however many layers there are", "[layering]") {
  for (const std::size_t n : {std::size_t{3}, std::size_t{8}, std::size_t{40}}) {
    const Problem problem = problem_of(layers(n), machine(0.5, 1));
    CHECK(judged(problem, "demand_layering(lead=0)").peak == 2 * layer);
    CHECK(judged(problem, "demand_layering(lead=1)").peak == 4 * layer);
    if (n > 3) CHECK(judged(problem, "demand_layering(lead=2)").peak == 5 * layer);
    CHECK(judged(problem, "store_all").peak == 2 * static_cast<std::int64_t>(n) * layer);
  }
}

TEST_CASE("demand_layering answers budgets far below the parameters' bytes", "[layering]") {
  const Problem problem = problem_of(layers(40), machine(0.5, 1), {.optimizer = Optimizer::adam});
  const PlanOutcome nothing = plan_one(problem, "demand_layering", Bytes{0});
  const Bytes least = std::get<Infeasible>(nothing).smallest.value();
  CHECK(least == 2 * layer);
  CHECK(std::holds_alternative<Infeasible>(plan_one(problem, "demand_layering", least - Bytes{1})));
  double slower = 0;
  for (Bytes budget = 12 * layer; budget >= least; budget -= Bytes{4}) {
    const double time = judged(problem, "demand_layering", budget).makespan.value;
    CHECK(time >= slower);
    slower = time;
  }
}

// Two layers: forward and backward 3 n + 2 t = 7 s, two updates of 2 s on the host; nothing returns, since the next
// iteration streams from there. With overlap=on the first gradient is on the host at 3.5 + 0.5 + 2 + 0.5 = 5.5 s.
TEST_CASE("updates of streamed parameters stay on the host", "[layering]") {
  const Problem problem = problem_of(layers(2), machine(0.5, 1), {.optimizer = Optimizer::adam});
  CHECK(seconds(problem, "demand_layering(lead=1)") == 7 + 2 * 2);
  CHECK(seconds(problem, "demand_layering(lead=1, overlap=on)") == 2.5 + 0.5 + 2 + 0.5 + 2 * 2);
}

TEST_CASE("demand_layering is legal, as promised and monotone on random problems", "[layering][eleventh-2]") {
  const std::vector<std::string> specs{"demand_layering",
                                       "demand_layering(overlap=on)",
                                       "demand_layering(from=disk)",
                                       "demand_layering(lead=3, from=disk, overlap=on)",
                                       "rotor|demand_layering",
                                       "offload_greedy|demand_layering",
                                       "sparse_update|demand_layering"};
  for (const std::string& spec : specs) {
    const std::uint64_t seeds = spec.starts_with("demand") ? 30 : 6;
    for (const RandomCase seed : random_cases(1, seeds)) {
      Random random(seed);
      const ProblemOptions options{.micro_batches = random.between(1, 3),
                                   .optimizer = random.chance(0.5) ? Optimizer::adam : Optimizer::none,
                                   .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
      Chain chain = random_small_chain(seed, random.between(1, 8));
      if (std::ranges::all_of(chain.stages, [](const Stage& stage) { return stage.parameters.empty(); })) continue;
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = transformed(problem_of(chain, machine(random.between(1, 8), 4), options), passes);
      INFO(spec << ", seed " << seed);
      const Plan free = judged(problem, spec);
      const Bytes least = std::get<Infeasible>(plan_one(problem, spec, Bytes{-1})).smallest.value();
      double slower = free.makespan.value;
      for (Bytes budget = free.peak; budget >= least; budget -= Bytes{5}) {
        const Plan made = judged(problem, spec, budget);
        CHECK(made.makespan.value >= slower * (1 - 1e-9));
        slower = std::max(slower, made.makespan.value);
      }
      judged(problem, spec, least);
    }
  }
}

TEST_CASE("demand_layering needs a host, a rate for updates and a disk to read", "[layering]") {
  const auto message = [](const Problem& problem, const std::string& spec) -> std::string {
    try {
      plan_one(problem, spec, std::nullopt);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message(problem_of(layers(2), gpus({}), {.optimizer = Optimizer::adam}), "demand_layering") ==
        "demand_layering: platform 'test' does not state how fast the host updates parameters: 'host' has no 'adam'");
  CHECK(message(problem_of(layers(2), gpus({})), "demand_layering(from=disk)") ==
        "demand_layering: platform 'test' has no disk behind the host");
  Problem alone = problem_of(layers(2), gpus({}));
  alone.platform.memories.pop_back();
  alone.platform.links.clear();
  CHECK(message(alone, "demand_layering") == "demand_layering: platform 'test' has no host memory");
}

}  // namespace
}  // namespace plimsoll
