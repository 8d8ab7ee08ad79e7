// plimsoll explain: figures that can be added up again, and what more memory buys against many budgets asked one by
// one.

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/explain/better_plans.h"
#include "experiments/explain/explanation.h"
#include "experiments/explain/explanation_text.h"
#include "sim/bound/iteration_bound.h"
#include "sim/core/tolerance.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

AnsweredQuestion asked(Question question) {
  BudgetedProblem made = budgeted_problem_of(question);
  Answer answered = std::move(answer(question, made.problem, std::span(&made.budget, 1)).front());
  REQUIRE(answered.schedule);
  return {std::move(question), std::move(made.problem), std::move(answered)};
}

Question question_of(std::string trace, std::string platform, const std::string& strategy, Engine engine) {
  return {.trace = std::move(trace),
          .platform = std::move(platform),
          .strategy = parse_pipeline(strategy, "test"),
          .engine = engine};
}

/// What is live at an instant, buffer by buffer: from the step that makes it begins until the one that frees it ends.
std::int64_t live_buffers(const AnsweredQuestion& of, MemoryId memory, Seconds now, std::uint32_t round) {
  const Schedule& schedule = *of.answer.schedule;
  const Timeline& timeline = *of.answer.timeline;
  std::vector<int> alive(schedule.buffers.size(), 0);
  for (const BufferId b : schedule.resident) ++alive[b.index];
  for (std::size_t s = 0; s < schedule.steps.size(); ++s) {
    const Interval& ran = timeline.steps[s];
    const bool began = std::pair(ran.start, ran.start_round) <= std::pair(now, round);
    const bool ended = std::pair(ran.finish, ran.finish_round) <= std::pair(now, round);
    for (const BufferId b : schedule.buffers_in(schedule.steps[s].allocates)) alive[b.index] += began ? 1 : 0;
    for (const BufferId b : schedule.buffers_in(schedule.steps[s].frees)) alive[b.index] -= ended ? 1 : 0;
  }
  std::int64_t sum = 0;
  for (std::size_t b = 0; b < alive.size(); ++b) {
    if (schedule.buffers[b].memory == memory) sum += alive[b] * schedule.buffers[b].bytes.count;
  }
  return sum;
}

void check_peak(const AnsweredQuestion& of, const PeakContents& made) {
  const Schedule& schedule = *of.answer.schedule;
  const Timeline& timeline = *of.answer.timeline;
  CHECK(sum(made.by_kind) == timeline.peaks[made.memory.index].bytes.count);
  if (!made.peak.at_start) {
    const Interval& moment = timeline.steps[made.peak.step.index];
    const std::int64_t buffers = sum(made.by_kind) - made.by_kind[workspace_kind];
    CHECK(buffers == live_buffers(of, made.memory, moment.start, moment.start_round));
  }
  CHECK(made.largest.size() == std::min<std::size_t>(10, [&] {
          std::size_t count = 0;
          for (const std::size_t each : made.buffers) count += each;
          return count;
        }()));
  CHECK(std::ranges::is_sorted(made.largest, std::ranges::greater{},
                               [&](const ValueAtPeak& held) { return schedule[held.buffer].bytes; }));
  for (const ValueAtPeak& held : made.largest) {
    CHECK(schedule[held.buffer].memory == made.memory);
    const auto has = [&](StepId s, Slice Step::*list) {
      const auto buffers = schedule.buffers_in(schedule[s].*list);
      return std::ranges::find(buffers, held.buffer) != buffers.end();
    };
    CHECK((held.made ? has(*held.made, &Step::allocates)
                     : std::ranges::find(schedule.resident, held.buffer) != schedule.resident.end()));
    if (held.freed) CHECK(has(*held.freed, &Step::frees));
  }
}

void check_explained(const AnsweredQuestion& of) {
  const Explanation made = explain(of, Better::no);
  const double makespan = of.answer.metrics->makespan.value;
  for (const DeviceTime& device : made.devices) {
    double sum = device.contention.value;
    for (const TimePart& part : device.parts) sum += part.time.value;
    CHECK(sum == Approx(makespan).epsilon(model_tolerance));
  }
  double path = 0, limits = 0;
  std::size_t steps = 0;
  Seconds next;
  for (const PathPart& part : made.path) {
    CHECK(part.start.value == Approx(next.value).margin(2 * model_tolerance * makespan));
    next = part.start + part.time;
    path += part.time.value;
    steps += part.steps;
  }
  for (const Seconds time : made.limits) limits += time.value;
  CHECK(path == Approx(makespan).epsilon(model_tolerance));
  CHECK(limits == Approx(makespan).epsilon(model_tolerance));
  CHECK(steps == made.path_steps);
  REQUIRE(!made.memories.empty());
  for (const PeakContents& memory : made.memories) check_peak(of, memory);
}

TEST_CASE("what is explained adds up to the makespan and to every peak, in both engines", "[explain]") {
  const Engine engine = GENERATE(Engine::event, Engine::simgrid);
  struct Case {
    const char *trace, *platform, *strategy;
    std::uint32_t micro_batches;
  };
  const auto of = GENERATE(Case{"uniform:12", "tests/experiments/one_host.yaml", "offload_greedy", 1},
                           Case{"uniform:12", "tests/experiments/one_host.yaml", "rotor|offload_greedy", 2},
                           Case{"gpt12_w768_t256_b4_cpu", "h200", "rotor", 1},
                           Case{"gpt12_w768_t256_b4_cpu", "h200", "quantize", 1},
                           Case{"gpt12_w768_t256_b4_cpu", "h100_sxm_8", "1f1b(stages=4)", 8},
                           Case{"gpt12_w768_t256_b4_cpu", "h100_sxm_8", "gpipe(stages=2)|save_on_cpu", 4},
                           Case{"transformer:view=graph,layers=2,width=64,heads=4,sequence=32,vocabulary=100",
                                "h100_sxm_8", "megatron(tensor=4)|1f1b", 4});
  CAPTURE(of.trace, of.strategy, engine);
  Question question = question_of(of.trace, of.platform, of.strategy, engine);
  question.micro_batches = of.micro_batches;
  if (std::string(of.trace) == "uniform:12" && of.micro_batches == 1) question.memory = Share{60};
  check_explained(asked(question));
}

TEST_CASE("hosts that issue kernels are steps of the chain, and limit it where they are slow", "[explain]") {
  const AnsweredQuestion of =
      asked(question_of("transformer:view=graph,layers=2,width=64,heads=4,sequence=32,vocabulary=100",
                        "h200:host_launch=10ms", "store_all", Engine::event));
  check_explained(of);
  const Explanation made = explain(of, Better::no);
  CHECK(most_limiting(made) == PathLimit::host);
  CHECK(made.limits[static_cast<std::size_t>(PathLimit::host)] > 0.9 * of.answer.metrics->makespan);
}

TEST_CASE("exchanges within the ops of stages count as the link's, not the device's", "[explain]") {
  Question question = question_of("gpt2", "h100_sxm_8", "megatron(tensor=4)|1f1b", Engine::event);
  question.micro_batches = 2;
  const AnsweredQuestion of = asked(question);
  const Explanation made = explain(of, Better::no);
  double exchanged = 0;
  for (const TimePart& part : made.devices[0].parts) {
    if (part.axis == "tensor") exchanged = part.time.value;
  }
  CHECK(exchanged > 0);
  CHECK(made.limits[static_cast<std::size_t>(PathLimit::link)].value > 0.5 * exchanged);
}

TEST_CASE("the next faster plan and each shave are what asking budget by budget finds", "[explain]") {
  const auto strategy = GENERATE("rotor", "chen_sqrt", "greedy_recompute");
  Question question = question_of("gpt12_w768_t256_b4_cpu", "h200", strategy, Engine::event);
  question.memory = Share{82};
  const AnsweredQuestion of = asked(question);
  const BetterPlans better = better_plans(of);
  const Metrics& now = *of.answer.metrics;
  std::vector<std::optional<Bytes>> budgets;
  constexpr int asked_budgets = 60;
  for (int k = 0; k <= asked_budgets; ++k) budgets.emplace_back(now.peak + Bytes{now.peak.count / 100 * k});
  const std::vector<Answer> answers = answer(question, of.problem, budgets);
  IterationBounds bounds(of.problem, DeviceId{0}, {.out = ways_out(of.problem.platform, DeviceId{0})});
  const auto check = [&](const std::optional<FasterPlan>& plan, Seconds target) {
    for (const Answer& each : answers) {
      const bool is_enough = each.metrics->makespan <= target;
      if (is_enough) REQUIRE(plan);
      if (plan && *each.budget >= plan->needs) CHECK(is_enough);
      if (plan && *each.budget < plan->needs) CHECK_FALSE(is_enough);
    }
    if (plan) CHECK(plan->makespan <= target);
  };
  check(better.next, (1 - sum_tolerance) * now.makespan);
  REQUIRE(better.shaves.size() == 5);
  for (const Shave& shave : better.shaves) {
    const Seconds target = (1 - shave.share) * now.makespan;
    check(shave.plan, target);
    if (shave.plan && shave.at_least) CHECK(*shave.at_least <= shave.plan->needs);
    if (shave.is_impossible) CHECK(bounds.within(std::nullopt).time > target);
    if (shave.is_impossible || !shave.at_least) continue;
    CHECK(bounds.within(*shave.at_least).time > target);
    CHECK(bounds.within(Bytes{shave.at_least->count + shave.at_least->count / 500}).time <= target);
  }
}

TEST_CASE("a question, its schedule's file and its point of a sweep are explained alike", "[explain]") {
  const TemporaryFolder folder;
  std::ofstream(folder / "one.yaml") << "format: plimsoll.experiment.v1\nname: one\ntraces: gpt12_w768_t256_b4_cpu\n"
                                        "platforms: h200\nstrategies: [store_all, rotor]\nmemory: ['30 %', '80 %']\n"
                                        "optimizer: adam\nengine: event\n";
  const std::string at = folder.path.string();
  REQUIRE(plimsoll("sweep " + at + "/one.yaml -o " + at + "/swept").exit_code == 0);
  const std::string words = " -t gpt12_w768_t256_b4_cpu -p h200 -s rotor --optimizer adam --engine event";
  nlohmann::json record;
  std::ifstream records(folder / "swept/results.jsonl");
  for (std::string line; std::getline(records, line);) record = nlohmann::json::parse(line);
  REQUIRE(record["point"] == 3);
  const std::string budget = record["memory_budget_bytes"].dump() + "B";
  REQUIRE(plimsoll("plan" + words + " -m " + budget + " -o " + at + "/plan.json").exit_code == 0);
  const auto explained = [](const std::string& of) {
    const ProgramRun run = plimsoll("explain --json --without-better " + of);
    CHECK(run.exit_code == 0);
    nlohmann::json json = nlohmann::json::parse(run.out);
    json.erase("trace");
    json.erase("platform");
    return json;
  };
  const nlohmann::json of_question = explained(words + " -m " + budget);
  CHECK(of_question["makespan_s"] == record["makespan_s"]);
  CHECK(of_question == explained(at + "/swept --point 3"));
  CHECK(of_question == explained(at + "/plan.json --engine event"));
  CHECK(of_question == explained("--schedule " + at + "/plan.json --engine event"));
  CHECK(plimsoll("explain " + at + "/swept --point 0").exit_code == 1);
}

TEST_CASE("explain refuses what it does not have by name", "[explain]") {
  const TemporaryFolder folder;
  const std::string at = folder.path.string();
  std::ofstream(folder / "one.yaml") << "format: plimsoll.experiment.v1\nname: one\ntraces: uniform:4\n"
                                        "platforms: ideal\nstrategies: store_all\n";
  REQUIRE(plimsoll("sweep " + at + "/one.yaml -o " + at + "/swept").exit_code == 0);
  const auto refusal = [&](const std::string& of) {
    const ProgramRun run = plimsoll("explain " + of);
    CHECK(run.exit_code == 2);
    CHECK(run.out.empty());
    return run.err;
  };
  CHECK(refusal(at + "/swept") == at + "/swept: is a folder: expected --point and the number of a point\n");
  CHECK(refusal(at + "/swept --point 1") == "--point: " + at + "/swept has no result of point 1 (results there: 1)\n");
  CHECK(refusal(at + "/swept --point x") == "--point: expected a whole number from 0 to 1000000000, found 'x'\n");
  CHECK(refusal(at + "/one.yaml --point 1") == "--point: is for the folder of a sweep only\n");
  CHECK(refusal(at + " --point 1") == "--point: " + at + " has no result of point 1 (results there: 0)\n");
  CHECK(refusal(at + "/swept --point 0 -t uniform:4") ==
        "--point: is of the trace and platform that the sweep has; leave out --trace and --platform\n");
  CHECK(refusal(at + "/none").find(at + "/none") == 0);
}

}  // namespace
}  // namespace plimsoll
