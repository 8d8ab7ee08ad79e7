// Pipelines of unequal stages with memory strategies in them: every schedule is legal, keeps its promise in both
// engines and its budget, and less memory is never faster.

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/io/input_error.h"
#include "strategies/compose/plan.h"
#include "strategies/compose/spec.h"
#include "tests/conformance/judged_pipelines.h"
#include "tests/generate/problems.h"
#include "tests/generate/random.h"
#include "tests/random_case.h"

namespace plimsoll {
namespace {

constexpr const char* pipelines[] = {"gpipe",
                                     "gpipe(order=fifo,cut=uniform)",
                                     "1f1b",
                                     "1f1b(backward=split)",
                                     "1f1b(sends=blocking)",
                                     "1f1b(cut=joint)",
                                     "1f1b(cut=joint,sends=blocking)",
                                     "1f1b(cut=alpa)",
                                     "1f1b(cut=madpipe)",
                                     "gpipe(order=fifo,work_conserving=yes)",
                                     "interleaved(work_conserving=yes)",
                                     "interleaved(work_conserving=yes,sends=blocking)",
                                     "zb_h1(cut=uniform,work_conserving=yes)",
                                     "chimera(work_conserving=yes)",
                                     "zb_h1(cut=piper)",
                                     "eager_1f1b",
                                     "eager_1f1b(backward=split,sends=blocking)",
                                     "interleaved",
                                     "interleaved(warm_up=less_memory)",
                                     "zb_h1",
                                     "zb_h2",
                                     "zb_auto",
                                     "zb_auto(limit=2)",
                                     "zb_v",
                                     "chimera",
                                     "dualpipe",
                                     "v_min",
                                     "v_half",
                                     "v_half(pattern=1f1b_v)",
                                     "v_half(pattern=exhaustive,limit=2)",
                                     "hanayo",
                                     "hanayo(backward=split)",
                                     "dualpipe_v",
                                     "pipeline_search(moves=200)",
                                     "pipedream",
                                     "pipedream_2bw",
                                     "chimera(buckets=40B)",
                                     "dualpipe(buckets=99GB)"};
constexpr const char* memory[] = {"", "|full_recompute", "|chen_sqrt", "|selective", "|periodic", "|rotor"};

/// Stages of unequal times and sizes, each with parameters of its own.
Problem random_pipeline(std::uint64_t seed, const std::vector<Pass>& passes) {
  Random random(seed);
  const bool both_ways = passes[0].strategy->name == "chimera" || passes[0].strategy->name == "dualpipe";
  const std::uint32_t devices = both_ways ? 2 * random.between(1, 2) : random.between(1, 4);
  Chain chain = random_small_chain(seed, random.between(2 * devices, 2 * devices + 6));
  const bool has_versions = passes[0].strategy->needs_updates;
  if (has_versions && chain.parameters.empty()) chain.parameters.push_back({"w", Bytes{3}});
  chain = with_own_parameters(std::move(chain));
  const std::uint32_t least = passes[0].strategy->name == "dualpipe_v" ? 2 : 0;  // micro-batches a device
  const Gpus machine{
      .count = devices, .to_host = BytesPerSecond{8}, .to_peers = BytesPerSecond{16}, .peer_latency = Seconds{0.25}};
  ProblemOptions options{.micro_batches = both_ways ? 2 * (devices + random.between(0, 2))
                                                    : std::max(random.between(1, 9), least * devices),
                         .optimizer = random.chance(0.5) ? Optimizer::momentum : Optimizer::none,
                         .gradients = random.chance(0.5) ? Gradients::fresh : Gradients::existing,
                         .backward = backward_for(passes)};
  if (has_versions) {
    options.optimizer = Optimizer::momentum;
    options.gradients = Gradients::fresh;
  }
  if (passes[0].strategy->name == "pipedream_2bw") options.micro_batches = devices * random.between(1, 4);
  return problem_of(with_weight_times(std::move(chain)), gpus(machine), options);
}

TEST_CASE("pipelines of unequal stages, with memory strategies in them, within budgets", "[pipelining][turn-13]") {
  std::size_t squeezed = 0;
  for (const std::uint64_t seed : fewer_cases(1, 40)) {
    for (std::size_t k = 0; k < std::size(pipelines); ++k) {
      const std::string spec = std::string(pipelines[k]) + memory[(seed + k) % std::size(memory)];
      INFO(spec);
      const std::vector<Pass> passes = parse_spec(spec, "test");
      const Problem problem = random_pipeline(seed, passes);
      squeezed += judge_within_budgets(problem, passes).value_or(0);  // nothing: chains that weigh nothing
    }
  }
  if (all_cases()) CHECK(squeezed > cases_of(50U));
}

TEST_CASE("what cannot be a pipeline is refused with the reason", "[pipelining]") {
  const auto refusal = [](const std::string& spec, std::size_t stages, std::uint32_t devices) -> std::string {
    const std::vector<Pass> passes = parse_spec(spec, "test");
    try {
      plan(problem_of(even_chain(stages), gpus({.count = devices}), {.micro_batches = 2}), passes, std::nullopt);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing";
  };
  CHECK(refusal("1f1b(stages=3)", 4, 2) == "1f1b: stages=3, and platform 'test' has 2 devices");
  CHECK(refusal("interleaved(stages=2,chunks=3)", 4, 2) ==
        "interleaved: 6 parts of at least one stage each, and 'even' has 5 stages");
}

}  // namespace
}  // namespace plimsoll
