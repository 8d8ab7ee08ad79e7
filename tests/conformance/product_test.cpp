// The product of all strategies: every pair of two families, and random triples and quadruples, each with and without
// an optimizer, on a chain and a graph, on 1, 2 and 8 devices. Each is planned, judged and simulated, or finds no plan
// within the budget, or is refused with a reason: nothing else ends it. Run by hand, until what tests/README.md names
// is mended: build/tests/test_conformance [product]

#include <algorithm>
#include <catch2/catch.hpp>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "platforms/platform_file.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "strategies/list.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"
#include "traces/models/synthetic.h"

namespace plimsoll {
namespace {

/// Where a combination is tried.
struct Setting {
  std::uint32_t devices;
  bool on_graph, updates;
};

constexpr std::uint64_t settings = 12;

Setting setting_of(std::uint64_t number) {
  constexpr std::uint32_t devices[] = {1, 2, 8};
  return {devices[number % 3], number / 3 % 2 == 1, number / 6 % 2 == 1};
}

/// With a host that updates, and a disk behind it: what moves parameters needs both.
Platform machine(std::uint32_t devices) {
  const std::string text =
      "format: plimsoll.platform.v1\nname: machine\nsource: made up\ndevices:\n  - {name: gpu, count: " +
      std::to_string(devices) +
      ", memory: 1 GB, peak: {bf16: 10 TFLOPS, fp32: 5 TFLOPS}, memory_bandwidth: 100 GBps, launch_overhead: 1 us}\n"
      "memories:\n  - {name: host, size: 100 GB, bandwidth: 50 GBps, adam: 5 GBps}\n  - {name: nvme, size: 1 TB}\n"
      "links:\n  - {name: bus, between: [gpu, host], bandwidth: 10 GBps, latency: 2 us}\n"
      "  - {name: m2, between: [host, nvme], bandwidth: 2 GBps, latency: 0 s, duplex: half}\n" +
      std::string(devices > 1 ? "  - {name: fast, between: [gpu, gpu], bandwidth: 20 GBps, latency: 1 us}\n" : "");
  return parse_platform(text, "machine.yaml");
}

/// Whether one of them searches so long that it is tried on a few stages or ops only.
bool is_slow(std::span<const Pass> passes) {
  return std::ranges::any_of(passes, [](const Pass& pass) {
    const Effort& effort = pass.strategy->effort;
    return effort.stages != no_size_limit || effort.ops != no_size_limit;
  });
}

std::variant<Chain, Graph> model_for(std::span<const Pass> passes, const Setting& on, std::uint64_t seed) {
  if (!is_slow(passes)) {
    const std::string shape = ",width=32,heads=8,sequence=16,batch=1,vocabulary=32,dtype=bf16";
    return synthetic_model(on.on_graph ? "transformer:layers=1" + shape + ",view=graph"
                                       : "transformer:layers=3" + shape);
  }
  std::uint32_t stages = 5, ops = 5;
  for (const Pass& pass : passes) {
    stages = std::min(stages, pass.strategy->effort.trials.stages);
    ops = std::min(ops, pass.strategy->effort.trials.ops);
  }
  if (on.on_graph) return random_graph(seed, ops);
  return with_weight_times(random_small_chain(seed, stages));
}

/// Whether one of them works on several devices; others take as long for each micro-batch as for the first.
bool use_several_devices(std::span<const Pass> passes) {
  return std::ranges::any_of(
      passes, [](const Pass& pass) { return pass.strategy->partitions() || pass.strategy->family == Family::hybrid; });
}

/// What is wrong with a plan, in words; empty: nothing.
std::string wrong_with(const Problem& problem, const PlanOutcome& outcome, std::optional<Bytes> budget) {
  const Plan* made = std::get_if<Plan>(&outcome);
  if (made == nullptr) return {};
  const std::vector<Violation> found = check(made->schedule, problem.graph, problem.platform, 1);
  if (!found.empty()) return name_of(found.front().rule) + ": " + found.front().what;
  const Timeline timeline = simulate_event(made->schedule, problem.platform);
  const Metrics metrics = measure(problem, made->schedule, timeline);
  const auto bytes = [](Bytes b) { return std::to_string(b.count) + " B"; };
  if (metrics.peak != made->peak) return bytes(made->peak) + " promised, " + bytes(metrics.peak) + " simulated";
  if (metrics.makespan.value != Approx(made->makespan.value).epsilon(1e-9)) return "another time than promised";
  if (budget && metrics.peak > *budget) return bytes(metrics.peak) + " in a budget of " + bytes(*budget);
  return {};
}

/// As `wrong_with`; nothing where it is refused, whose reason is the program's answer.
std::optional<std::string> wrong_with(const std::string& spec, const Setting& on, std::uint64_t seed) try {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  ProblemOptions options{.micro_batches = 2 * (use_several_devices(passes) ? on.devices : 1),
                         .optimizer = on.updates ? Optimizer::adam : Optimizer::none,
                         .keeps_averages = on.updates && seed % 2 == 0,
                         .clips_gradients = on.updates && seed % 5 == 0,
                         .evaluation = seed % 7 == 0 ? std::optional(Evaluation{.every = 3}) : std::nullopt,
                         .gradients = seed % 3 == 0 ? Gradients::existing : Gradients::fresh,
                         .backward = backward_for(passes),
                         .inner = inner_for(passes)};
  const Gpus alike{.count = on.devices,
                   .to_host = BytesPerSecond{16},
                   .to_peers = BytesPerSecond{16},
                   .adam = BytesPerSecond{8},
                   .to_disk = BytesPerSecond{8}};  // that take a trace's times: random models state no flops
  const Platform platform = is_slow(passes) ? gpus(alike) : machine(on.devices);
  if (on.updates && seed % 3 != 0) {
    options.parameter_groups = {{"*[13579]*", Optimizer::momentum}, {"*[24680]*", Optimizer::sgd}};
  }
  auto made = make_problem(model_for(passes, on, seed), platform, options);
  if (std::holds_alternative<std::string>(made)) {  // a group without parameters, maybe
    options.parameter_groups.clear();
    made = make_problem(model_for(passes, on, seed), platform, options);
  }
  if (std::holds_alternative<std::string>(made)) return std::nullopt;
  const Problem problem = transformed(std::get<Problem>(std::move(made)), passes);
  const PlanOutcome all = plan(problem, passes, std::nullopt);
  const Plan* whole = std::get_if<Plan>(&all);
  if (std::string wrong = wrong_with(problem, all, std::nullopt); whole == nullptr || !wrong.empty()) return wrong;
  const Bytes less{whole->peak.count * 7 / 8};
  return wrong_with(problem, plan(problem, passes, less), less);
} catch (const InputError&) {
  return std::nullopt;
} catch (const std::exception& broken) {
  return broken.what();
}

/// Whether it was planned, or found to need more memory.
bool is_planned(const std::string& spec, std::uint64_t number, std::uint64_t seed) {
  const Setting on = setting_of(number);
  const std::optional<std::string> wrong = wrong_with(spec, on, seed);
  INFO(spec << " on " << on.devices << " devices, a " << (on.on_graph ? "graph" : "chain")
            << (on.updates ? ", with updates" : ""));
  CHECK(wrong.value_or("") == "");
  return wrong.has_value();
}

/// Every run tries one share of some 82,000 combinations, another one with another PLIMSOLL_TURN; a larger one where
/// all cases are asked for, of which the whole would take hours. As these numbers and that of the settings have no
/// divisor in common, settings take turns.
constexpr std::uint64_t shares = 1999, large_shares = 499;

bool is_in_share(std::uint64_t number) {
  if (random_case_state().chosen || !every_case()) return true;
  return number % large_shares == turn().value_or(0) % large_shares;
}

/// With its defaults, but for what it must be told and how long it may search; of replicas also two, that leave devices
/// for others.
std::vector<std::string> specs_of(const StrategyInfo& strategy) {
  const std::string name(strategy.name);
  const auto has = [&](std::string_view option) { return strategy.options.find(option) != nullptr; };
  if (strategy.family == Family::compression && has("tensors")) return {name + "(tensors=all)"};
  if (strategy.family == Family::transform && has("ops")) return {name + "(ops=*)"};
  if (has("time_limit")) return {name + "(time_limit=1)"};
  if (has("nodes")) return {name + "(nodes=1)"};
  if (has("ranks")) return {name, name + "(ranks=2)"};
  if (has("tensor")) return {name, name + "(tensor=2)", name + "(tensor=2,sequence=yes)"};
  return {name};
}

TEST_CASE("every pair of strategies of two families is planned as promised, or refused", "[conformance][product]") {
  std::vector<std::string> pairs;
  for (const StrategyInfo* first : strategies()) {
    for (const StrategyInfo* second : strategies()) {
      if (!(first->family < second->family)) continue;
      for (const std::string& one : specs_of(*first)) pairs.push_back(one + "|" + specs_of(*second).front());
    }
  }
  std::uint64_t planned = 0;
  for (const RandomCase number : fewer_cases(0, settings * pairs.size() - 1, shares)) {
    if (!is_in_share(number)) continue;
    planned += is_planned(pairs[number / settings], number % settings, number) ? 1 : 0;
  }
  if (all_cases()) CHECK(planned > 0);
}

/// Of as many families, in their order; of those that say which device works on what one.
std::string random_spec(Random& random, std::uint32_t count) {
  std::vector<Family> families{
      Family::transform,         Family::hybrid,      random.chance(0.5) ? Family::placement : Family::pipelining,
      Family::rematerialization, Family::compression, Family::offloading};
  while (families.size() > count) {
    families.erase(families.begin() + random.below(static_cast<std::uint32_t>(families.size())));
  }
  std::string spec;
  for (const Family family : families) {
    std::vector<const StrategyInfo*> of_it;
    std::ranges::copy_if(strategies(), std::back_inserter(of_it),
                         [&](const StrategyInfo* strategy) { return strategy->family == family; });
    const std::vector<std::string> ways = specs_of(*of_it[random.below(static_cast<std::uint32_t>(of_it.size()))]);
    spec += (spec.empty() ? "" : "|") + ways[random.below(static_cast<std::uint32_t>(ways.size()))];
  }
  return spec;
}

TEST_CASE("so are triples and quadruples", "[conformance][product]") {
  std::vector<std::string> specs;
  Random random(1);
  for (std::uint32_t k = 0; k < 300; ++k) specs.push_back(random_spec(random, 3 + k % 2));
  for (const RandomCase number : fewer_cases(0, settings * specs.size() - 1, shares)) {
    if (is_in_share(number)) is_planned(specs[number / settings], number % settings, number);
  }
}

}  // namespace
}  // namespace plimsoll
