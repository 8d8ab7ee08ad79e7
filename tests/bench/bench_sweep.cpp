// What a point of a sweep costs beside its planning, and what starting the program costs; CPU time.

#include <benchmark/benchmark.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/study/result_fields.h"
#include "experiments/study/run.h"
#include "tests/bench/cpu_seconds.h"

namespace {

using namespace plimsoll;

/// Chains of 50 random stages with 14 micro-batches: 1,428 to 2,128 steps a schedule, all different.
void point(benchmark::State& state, const std::string& strategy) {
  std::vector<Question> questions;
  std::vector<Problem> problems;
  for (int seed = 1; seed <= 10; ++seed) {
    questions.push_back({.trace = "random:stages=50,seed=" + std::to_string(seed),
                         .platform = "ideal",
                         .strategy = parse_pipeline(strategy, "bench"),
                         .micro_batches = 14,
                         .engine = Engine::event});
    problems.push_back(problem_of(questions.back()));
  }
  const std::optional<Bytes> unlimited;
  std::size_t next = 0, steps = 0;
  for (auto _ : state) {
    const std::size_t p = next++ % questions.size();
    answer(questions[p], problems[p], std::span(&unlimited, 1), [&](std::size_t, const Answer& made) {
      steps += made.schedule->steps.size();
      benchmark::DoNotOptimize(json_text(to_json(result_of(questions[p], problems[p], made))));
    });
  }
  state.counters["steps"] = static_cast<double>(steps) / static_cast<double>(state.iterations());
}

/// Thousands of budgets that one schedule answers.
void same_schedule(benchmark::State& state) {
  const Question question{.trace = "random:stages=50,seed=1",
                          .platform = "ideal",
                          .strategy = parse_pipeline("chen_sqrt", "bench"),
                          .micro_batches = 14,
                          .engine = Engine::event};
  const Problem problem = problem_of(question);
  const Bytes least = *smallest_feasible(problem, question.strategy.passes);
  std::vector<std::optional<Bytes>> budgets;
  for (std::int64_t b = 0; b < 1000; ++b) budgets.emplace_back(least + Bytes{b});
  for (auto _ : state) {
    answer(question, problem, budgets, [&](std::size_t, const Answer& made) {
      benchmark::DoNotOptimize(json_text(to_json(result_of(question, problem, made))));
    });
  }
  state.SetItemsProcessed(state.iterations() * 1000);
}

/// `plimsoll --version`, from exec to exit.
void start_up(benchmark::State& state) {
  std::string program = PLIMSOLL_PROGRAM, option = "--version";
  char* words[] = {program.data(), option.data(), nullptr};
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", 1, 0);
  const double before = cpu_seconds(RUSAGE_CHILDREN);
  for (auto _ : state) {
    pid_t process = -1;
    int status = -1;
    if (posix_spawn(&process, program.c_str(), &quiet, nullptr, words, nullptr) != 0 ||
        waitpid(process, &status, 0) != process || status != 0) {
      state.SkipWithError("the program does not run");
      break;
    }
  }
  posix_spawn_file_actions_destroy(&quiet);
  state.counters["ms_cpu"] = 1e3 * (cpu_seconds(RUSAGE_CHILDREN) - before) / static_cast<double>(state.iterations());
}

BENCHMARK_CAPTURE(point, store_all, "store_all")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(point, chen_sqrt, "chen_sqrt")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(point, full_recompute, "full_recompute")->Unit(benchmark::kMillisecond);
BENCHMARK(same_schedule)->Unit(benchmark::kMillisecond);
BENCHMARK(start_up)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
