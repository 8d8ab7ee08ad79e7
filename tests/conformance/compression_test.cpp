// Compression beside the other memory strategies, on random graphs of pictures: legal, as promised, within the budget,
// never below a bound, the same in both engines; exact where it says so.

#include <catch2/catch.hpp>

#include "sim/engine/event/event_engine.h"
#include "sim/engine/simgrid/simgrid_engine.h"
#include "sim/io/input_error.h"
#include "sim/io/schedule/schedule_file.h"
#include "sim/judge/check.h"
#include "sim/measure/metrics.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

Problem pictures_problem(std::uint64_t seed) {
  Random random(seed);
  const ProblemOptions options{.micro_batches = random.chance(0.7) ? 1 : random.between(2, 3),
                               .gradients = random.chance(0.7) ? Gradients::fresh : Gradients::existing};
  Platform platform = gpus({});
  if (random.chance(0.5)) {
    platform.devices[0].memory_bandwidth = BytesPerSecond{static_cast<double>(random.between(100, 5000))};
    platform.devices[0].launch_overhead = Seconds{0.01 * static_cast<double>(random.between(0, 10))};
  }
  return problem_of(as_pictures(random_graph(seed, random.between(1, 10)), seed), std::move(platform), options);
}

void judge_packed(const Problem& problem, const Plan& made, std::optional<Bytes> budget) {
  const std::vector<Violation> found = check(made.schedule, problem.graph, problem.platform, 1);
  INFO((found.empty() ? std::string() : found[0].what));
  REQUIRE(found.empty());
  const Timeline event = simulate_event(made.schedule, problem.platform);
  const Metrics metrics = measure(problem, made.schedule, event);
  CHECK(metrics.peak == made.peak);
  CHECK(metrics.makespan.value == Approx(made.makespan.value).epsilon(1e-9));
  CHECK((!budget || metrics.peak <= *budget));
  const Timeline simgrid = simulate_simgrid(made.schedule, problem.platform);
  CHECK(simgrid.makespan.value == Approx(event.makespan.value).epsilon(1e-9));
  CHECK(simgrid.peaks[0].bytes == event.peaks[0].bytes);
  const Stays stays = stays_in(made.schedule, problem.graph, problem.platform);
  const LowerBounds bounds = lower_bounds(problem, 1, stays, made.schedule.codecs);
  CHECK(metrics.makespan.value >= bounds.time().value * (1 - 1e-12));
  CHECK(metrics.peak >= bounds.memory);
}

TEST_CASE("packed forms are recomputed before, offloaded after, and both", "[conformance][compression]") {
  const std::vector<std::string> specs{"greedy_recompute|quantize(bits=2, group=8)",
                                       "min_cut|pool(tensors=all)",
                                       "greedy_recompute|quantize(tensors=all+checkpoint, group=16)",
                                       "quantize(group=16)|offload_greedy",
                                       "quantize(group=16)|save_on_cpu",
                                       "pool(tensors=all, relu=byte)|vdnn(mode=all)",
                                       "quantize(group=8)|capuchin",
                                       "lossless(tensors=all)|offload_exact",
                                       "quantize(group=8)|superneurons",
                                       "greedy_recompute|lossless(tensors=all, nonzero=0.2)|offload_greedy(chunks=3)",
                                       "sparse_update(train=all)|quantize"};
  for (const std::string& spec : specs) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    for (const RandomCase seed : fewer_cases(1, 60)) {
      INFO(spec << ", seed " << seed);
      const Problem given = pictures_problem(seed);
      if (passes[0].strategy->transforms() && bytes_of_kind(given.graph, TensorKind::parameter) == Bytes{0}) continue;
      const Problem problem = transformed(given, passes);
      const PlanOutcome free = plan(problem, passes, std::nullopt);
      REQUIRE(std::holds_alternative<Plan>(free));
      judge_packed(problem, std::get<Plan>(free), std::nullopt);
      const Bytes peak = std::get<Plan>(free).peak;
      Seconds slower;
      for (const std::int64_t share : {100, 85, 70, 55}) {
        const Bytes budget{peak.count * share / 100};
        const PlanOutcome made = plan(problem, passes, budget);
        if (std::holds_alternative<Infeasible>(made)) continue;
        judge_packed(problem, std::get<Plan>(made), budget);
        CHECK(std::get<Plan>(made).makespan >= (1 - 1e-9) * slower);
        slower = std::max(slower, std::get<Plan>(made).makespan);
      }
    }
  }
}

/// Convolutions become products of matrices, whose weights' gradients are sums over rows.
Problem products_problem(std::uint64_t seed) {
  Problem problem = pictures_problem(seed);
  for (Op& op : problem.graph.ops) {
    if (op.kind == "convolution") op.kind = "addmm";
    if (op.kind == "convolution_backward") op.kind = "mm";
  }
  return problem;
}

TEST_CASE("steps of derivatives and sampled rows are read as they are, where there is something for them",
          "[conformance][compression]") {
  std::size_t answered = 0, approximate = 0;
  for (const char* spec : {"fewbit", "fewbit(linear=0.3)", "fewbit(linear=0.3,sums=gaussian)",
                           "greedy_recompute|fewbit(linear=0.4,sums=dct)|offload_greedy",
                           "greedy_recompute|fewbit(linear=0.5)|offload_greedy", "fewbit(bits=1)|offload_greedy",
                           "greedy_recompute|approx_bp", "wta_crs(ratio=0.2)", "greedy_recompute|wta_crs|save_on_cpu",
                           "mesa|offload_greedy", "greedy_recompute|gist(precision=8)",
                           "acgc(nonzero=0.3)|vdnn(mode=all)", "blpa|save_on_cpu", "greedy_recompute|mesa(groups=3)"}) {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    for (const RandomCase seed : fewer_cases(1, 60)) {
      INFO(spec << ", seed " << seed);
      const Problem problem = products_problem(seed);
      std::optional<PlanOutcome> free;
      try {
        free = plan(problem, passes, std::nullopt);
      } catch (const InputError&) {  // nothing for it there
        continue;
      }
      REQUIRE(std::holds_alternative<Plan>(*free));
      const Plan& made = std::get<Plan>(*free);
      ++answered;
      approximate += made.schedule.approximate.size();
      judge_packed(problem, made, std::nullopt);
      const Schedule again = parse_schedule(schedule_text(made.schedule, "test", "."), "again.json");
      CHECK(again.codecs == made.schedule.codecs);
      for (const std::int64_t share : {90, 70}) {
        const Bytes budget{made.peak.count * share / 100};
        const PlanOutcome within = plan(problem, passes, budget);
        if (const Plan* fits = std::get_if<Plan>(&within)) judge_packed(problem, *fits, budget);
      }
    }
  }
  CHECK(answered > 20);
  CHECK(approximate > 0);
}

TEST_CASE("numbers of 16 bits are packed by rules of their own", "[conformance][compression]") {
  for (const RandomCase seed : fewer_cases(1, 40)) {
    Graph graph = as_pictures(random_graph(seed, 6), seed);
    for (Tensor& tensor : graph.tensors) {
      if (tensor.shape.empty()) continue;
      tensor.bytes = Bytes{tensor.bytes.count / 2};
      tensor.dtype = "bf16";
    }
    Platform platform = gpus({});
    platform.devices[0].memory_bandwidth = BytesPerSecond{700};
    platform.devices[0].launch_overhead = Seconds{0.01};
    const Problem problem = problem_of(std::move(graph), std::move(platform), {});
    for (const char* spec : {"alam", "gact", "quantize(group=8)", "pool(tensors=all)", "lossless(tensors=all)"}) {
      INFO(spec << ", seed " << seed);
      const PlanOutcome free = plan(problem, parse_spec(spec, "test"), std::nullopt);
      REQUIRE(std::holds_alternative<Plan>(free));
      judge_packed(problem, std::get<Plan>(free), std::nullopt);
    }
  }
}

TEST_CASE("what is packed without loss leaves every gradient exact, and what is not says which",
          "[conformance][compression]") {
  std::size_t approximations = 0;
  for (const RandomCase seed : fewer_cases(1, 100)) {
    const Problem problem = pictures_problem(seed);
    INFO("seed " << seed);
    const auto approximate = [&](const char* spec) {
      return std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt)).schedule.approximate;
    };
    CHECK(approximate("lossless(tensors=all)").empty());
    approximations += approximate("quantize(group=8)").size();
  }
  CHECK(approximations > 0);
}

TEST_CASE("a schedule with packed forms is written and read as it is", "[conformance][compression]") {
  for (const RandomCase seed : fewer_cases(1, 40)) {
    const Problem problem = pictures_problem(seed);
    for (const char* spec :
         {"quantize(group=8)", "pool(tensors=all, type=soft)", "prune_bsr(tensors=all, block=2, keep=0.3, product=0.7)",
          "gact", "lossless(tensors=all, nonzero=0.1)"}) {
      INFO(spec << ", seed " << seed);
      const Schedule schedule = std::get<Plan>(plan(problem, parse_spec(spec, "test"), std::nullopt)).schedule;
      const std::string text = schedule_text(schedule, "test", ".");
      const Schedule again = parse_schedule(text, "again.json");
      CHECK(again.codecs == schedule.codecs);
      CHECK(again.approximate == schedule.approximate);
      CHECK(schedule_text(again, "test", ".") == text);
      CHECK(check(again, problem.graph, problem.platform, 1).empty());
    }
  }
}

}  // namespace
}  // namespace plimsoll
