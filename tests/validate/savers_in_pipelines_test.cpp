// Pipelines in whose parts values, parameters or updates leave the device, and pipelines whose micro-batches wait
// elsewhere: each trains bit for bit as one device does.

#include <catch2/catch.hpp>

#include "sim/judge/check.h"
#include "tests/conformance/loose.h"
#include "tests/generate/problems.h"
#include "tests/training/training.h"
#include "validate/network_model.h"

namespace plimsoll {
namespace {

TEST_CASE("pipelines that offload in their parts, or let micro-batches wait elsewhere, train as one device does",
          "[validate][eleventh-8]") {
  const std::string network = GENERATE("mlp:layers=8,width=24,batch=6,classes=4",
                                       "gpt:layers=3,width=16,heads=2,sequence=8,batch=2,vocabulary=20");
  constexpr BytesPerSecond fast{20e9};
  const ProblemOptions options{.micro_batches = 5, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Replayed alone = replayed(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
  const Gpus machine{.count = 4, .to_host = fast, .to_peers = fast, .adam = fast};
  const Training four = training_of(network, gpus(machine), options);
  for (const char* spec : {"1f1b|offload_greedy", "interleaved(stages=2)|offload_fractional", "1f1b|save_on_cpu",
                           "1f1b|min_cut", "1f1b|zero_offload", "1f1b|full_recompute|zero_offload", "bpipe",
                           "pipeoffload(share=1,stages=2)", "bpipe|rotor"}) {
    INFO(network << ", " << spec);
    const PlanOutcome none = planned(four.problem, spec, Bytes{0});
    const std::optional<Bytes> least = std::get<Infeasible>(none).smallest;
    REQUIRE(least);
    const PlanOutcome made = planned(four.problem, spec, least);
    REQUIRE(std::holds_alternative<Plan>(made));
    const Schedule& schedule = std::get<Plan>(made).schedule;
    REQUIRE(check(schedule, four.problem.graph, four.problem.platform).empty());
    const Replayed pipelined = replayed(four, schedule);
    CHECK(differing(pipelined, alone).empty());
    for (const std::string& name : differing(alone, pipelined)) {  // updates on the host drop gradients
      if (!name.starts_with("gradient of ")) FAIL_CHECK(name);
    }
    const std::vector<Bytes> counted = recount(schedule, pipelined.timeline, four.problem.platform);
    for (std::size_t m = 0; m < counted.size(); ++m) CHECK(counted[m] == pipelined.timeline.peaks[m].bytes);
  }
}

Training with_one_scratch(Training training) {
  take_one_scratch(training.network, Bytes{1 << 14});
  const ProblemOptions options{.micro_batches = training.problem.micro_batches, .optimizer = Optimizer::adam};
  training.problem = problem_of(model_of(training.network.network, View::chain), training.problem.platform, options);
  return training;
}

/// Without the waits of copies back until what they were copied from has been freed: it may still be on its way then.
Schedule without_waits_for_room(const Schedule& schedule) {
  Loose loose(schedule);
  for (Loose::LooseStep& s : loose.steps) {
    if (s.step.kind != StepKind::prefetch) continue;
    std::erase_if(s.waits, [&](StepId wait) {
      const Loose::LooseStep& other = loose.steps[wait.index];
      return other.reads.empty() && other.writes.empty() && other.allocates.empty();  // it only frees
    });
  }
  return loose.packed();
}

/// How many chunks begin to come back while what they were copied from is still being sent.
std::size_t back_while_sent(const Schedule& schedule, const Timeline& timeline) {
  std::size_t count = 0;
  for (std::uint32_t s = 0; s < schedule.steps.size(); ++s) {
    if (schedule.steps[s].kind != StepKind::prefetch) continue;
    const Buffer& back = schedule[schedule.buffers_in(schedule.steps[s].allocates)[0]];
    for (std::uint32_t other = 0; other < s; ++other) {
      if (schedule.steps[other].kind != StepKind::send) continue;
      for (const BufferId sent : schedule.buffers_in(schedule.steps[other].reads)) {
        const bool are_same = schedule[sent].tensor == back.tensor && schedule[sent].micro_batch == back.micro_batch &&
                              schedule[sent].range_offset == back.range_offset;
        count += are_same && timeline.steps[s].start < timeline.steps[other].finish ? 1 : 0;
      }
    }
  }
  return count;
}

TEST_CASE("a chunk may come back while what it was copied from is still being sent", "[validate][eleventh-1]") {
  const std::string network = "mlp:layers=8,width=24,batch=64,classes=4";
  constexpr BytesPerSecond fast{20e9};
  const ProblemOptions options{.micro_batches = 5, .optimizer = Optimizer::adam};
  const Training one = training_of(network, one_gpu(), options);
  const Replayed alone = replayed(one, std::get<Plan>(planned(one.problem, "store_all")).schedule);
  Gpus machine{.count = 4, .to_host = fast, .to_peers = fast, .adam = fast};
  const Training four = with_one_scratch(training_of(network, gpus(machine), options));
  const Bytes least = *std::get<Infeasible>(planned(four.problem, "1f1b|offload_greedy", Bytes{0})).smallest;
  std::vector<Schedule> waiting, together;
  for (const std::int64_t percent : {105, 120}) {
    const PlanOutcome made = planned(four.problem, "1f1b|offload_greedy", Bytes{least.count * percent / 100});
    waiting.push_back(std::get<Plan>(made).schedule);
    together.push_back(without_waits_for_room(waiting.back()));
    REQUIRE(check(together.back(), four.problem.graph, four.problem.platform).empty());
  }
  std::size_t overlaps = 0;
  for (const double rate : {100e3, 20e3, 4e3}) {  // slower than planned: a chunk takes 15 ms, or more on a busy machine
    machine.to_peers = BytesPerSecond{rate};
    const Platform slow = gpus(machine);
    const auto overlaps_of = [&](const Schedule& schedule) {
      const auto run = run_of(four, schedule, {.links = &slow, .poisons = true, .keeps_values = true});
      REQUIRE(std::holds_alternative<Replayed>(run));
      CHECK(differing(alone, std::get<Replayed>(run)).empty());
      return back_while_sent(schedule, std::get<Replayed>(run).timeline);
    };
    for (const Schedule& schedule : waiting) CHECK(overlaps_of(schedule) == 0);
    for (const Schedule& schedule : together) overlaps += overlaps_of(schedule);
    if (overlaps > 0) break;
  }
  CHECK(overlaps > 0);
}

}  // namespace
}  // namespace plimsoll
