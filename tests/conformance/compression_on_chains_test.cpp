// Compression of what the stages of chains save, on one device and in the parts of pipelines, behind rematerialization
// and before offloading: legal, as promised, within the budget, never below a bound, the same in both engines.

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "sim/io/input_error.h"
#include "strategies/compose/spec.h"
#include "tests/conformance/judged_pipelines.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr const char* packers[] = {"quantize(group=16)",
                                   "quantize(bits=2, group=8, tensors=all+checkpoint)",
                                   "quantize(group=16, store=layer)",
                                   "pool(tensors=conv+linear+matmul+softmax, relu=byte)",
                                   "lossless(tensors=all, nonzero=0.2)",
                                   "gact(bits=2)",
                                   "alam",
                                   "prune_bsr(tensors=all, block=2)",
                                   "actnn"};
constexpr const char* on_one_device[] = {"%", "rotor|%", "full_recompute|%", "rotor|%|offload_greedy",
                                         "%|offload_greedy(chunks=3)"};
constexpr const char* on_several[] = {
    "gpipe|%",       "1f1b|%",          "1f1b|rotor|%", "1f1b|rotor|%|offload_greedy",
    "interleaved|%", "chimera|rotor|%", "hanayo|%",     "eager_1f1b|%|offload_greedy"};

std::string spec_of(std::string_view pattern, std::string_view packer) {
  std::string spec(pattern);
  return spec.replace(spec.find('%'), 1, packer);
}

/// Stages of unequal times and sizes, on a device whose memory is slow to read or takes no time.
Problem packed_problem(std::uint64_t seed, const std::vector<Pass>& passes, bool has_lists = true) {
  Random random(seed);
  const bool both_ways = passes[0].strategy->name == "chimera", is_alone = !passes[0].strategy->partitions();
  const std::uint32_t devices = is_alone ? 1 : both_ways ? 2 : random.between(1, 4);
  const std::uint32_t least = is_alone ? 1 : 2 * devices;
  Chain chain = with_own_parameters(random_small_chain(seed, random.between(least, least + 5)));
  chain = with_saved_tensors(std::move(chain), seed);
  if (!has_lists) chain = without_saved_tensors(std::move(chain));
  Gpus machine{.count = devices, .to_host = BytesPerSecond{2000}};
  if (random.chance(0.5)) {
    machine.to_peers = BytesPerSecond{4000};
    machine.peer_latency = Seconds{0.25};
  }
  Platform platform = gpus(machine);
  const bool takes_time = random.chance(0.7);
  for (Device& device : platform.devices) {
    if (!takes_time) continue;
    device.memory_bandwidth = BytesPerSecond{20'000};
    device.launch_overhead = Seconds{0.01};
  }
  return problem_of(std::move(chain), std::move(platform),
                    {.micro_batches = both_ways ? 2 * random.between(1, 2) : random.between(1, is_alone ? 3 : 6),
                     .optimizer = random.chance(0.5) ? Optimizer::momentum : Optimizer::none,
                     .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing,
                     .inner = inner_for(passes)});
}

void judge_packed_plan(const Problem& problem, const Plan& made, std::optional<Bytes> budget) {
  judge_plan(problem, made, budget);
  const Stays stays = stays_in(made.schedule, problem.graph, problem.platform);
  CHECK(made.peak >= lower_bounds(problem, devices_used(made.schedule), stays, made.schedule.codecs).memory);
}

TEST_CASE("packed forms of what stages save, within budgets", "[conformance][compression][eleventh-4]") {
  std::size_t packs = 0, approximate = 0;
  for (const RandomCase seed : fewer_cases(1, 60)) {
    for (std::size_t k = 0; k < std::size(on_one_device) + std::size(on_several); ++k) {
      const bool is_alone = k < std::size(on_one_device);
      const std::string spec = spec_of(is_alone ? on_one_device[k] : on_several[k - std::size(on_one_device)],
                                       packers[(seed + k) % std::size(packers)]);
      INFO(spec << ", seed " << seed);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = packed_problem(seed, passes);
      if (!lists_saved(*problem.chain)) continue;
      std::optional<Plan> all;
      try {
        all = std::get<Plan>(plan(problem, passes, std::nullopt));
      } catch (const InputError&) {
        continue;  // nothing of this chain can be packed so
      }
      judge_packed_plan(problem, *all, std::nullopt);
      for (const Step& step : all->schedule.steps) packs += step.kind == StepKind::pack ? 1 : 0;
      approximate += all->schedule.approximate.size();
      const PlanOutcome nothing = plan(problem, passes, Bytes{0});
      const auto* least = std::get_if<Infeasible>(&nothing);
      if (least == nullptr) continue;
      REQUIRE(least->smallest.has_value());
      std::vector<std::optional<Bytes>> budgets;
      for (std::uint32_t step = 0; step <= 3; ++step) {
        budgets.emplace_back(*least->smallest +
                             range_of(std::max(all->peak, *least->smallest) - *least->smallest, {step, 3}).offset);
      }
      std::optional<Seconds> before;
      for (const PlanOutcome& outcome : plan(problem, passes, budgets)) {
        REQUIRE(std::holds_alternative<Plan>(outcome));
        const Plan& made = std::get<Plan>(outcome);
        judge_packed_plan(problem, made, made.schedule.budget);
        if (before) CHECK(made.makespan <= *before);
        before = made.makespan;
      }
    }
  }
  if (all_cases()) {
    CHECK(packs > cases_of(1000U));
    CHECK(approximate > cases_of(100U));
  }
}

TEST_CASE("a stage's list of saved tensors changes nothing but for compression",
          "[conformance][compression][eleventh-4]") {
  const std::vector<std::string> specs{"store_all", "rotor", "chen_sqrt",  "periodic", "offload_greedy",     "vdnn",
                                       "pofo",      "gpipe", "1f1b|rotor", "zb_h1",    "1f1b|offload_greedy"};
  for (const RandomCase seed : fewer_cases(1, 40)) {
    for (const std::string& spec : specs) {
      INFO(spec << ", seed " << seed);
      std::vector<Pass> passes = parse_spec(spec, "test");
      if (backward_for(passes) == Backward::split) passes = parse_spec("1f1b", "test");
      const Problem with = packed_problem(seed, passes), without = packed_problem(seed, passes, false);
      CHECK(with.graph == without.graph);
      const Plan one = std::get<Plan>(plan(with, passes, std::nullopt)),
                 other = std::get<Plan>(plan(without, passes, std::nullopt));
      CHECK(one.peak == other.peak);
      CHECK(one.makespan == other.makespan);
      CHECK(one.schedule.steps.size() == other.schedule.steps.size());
    }
  }
}

TEST_CASE("tensors apart take the bytes and the time of one tensor together",
          "[conformance][compression][eleventh-8]") {
  for (const RandomCase seed : fewer_cases(1, 60)) {
    // Without slots rotor also asks greedy_recompute, which drops tensor by tensor.
    for (const std::string spec :
         {"store_all", "rotor(slots=100)", "chen_sqrt", "full_recompute", "gpipe", "1f1b|rotor(slots=100)"}) {
      INFO(spec << ", seed " << seed);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem together = packed_problem(seed, passes);
      Problem apart = together;
      apart.index = chain_graph(*together.chain, together.optimizer, Backward::whole, States::by_dtype, Inner::apart);
      apart.graph = std::exchange(apart.index->graph, {});
      const Plan one = std::get<Plan>(plan(together, passes, std::nullopt));
      for (const std::int64_t share : {100, 85, 70, 55}) {
        const Bytes budget{one.peak.count * share / 100};
        const PlanOutcome a = plan(together, passes, budget), b = plan(apart, passes, budget);
        REQUIRE(std::holds_alternative<Plan>(a) == std::holds_alternative<Plan>(b));
        if (std::holds_alternative<Infeasible>(a)) continue;
        CHECK(std::get<Plan>(a).peak == std::get<Plan>(b).peak);
        CHECK(std::get<Plan>(a).makespan == std::get<Plan>(b).makespan);
      }
    }
  }
}

}  // namespace
}  // namespace plimsoll
