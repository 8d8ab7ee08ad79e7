// Answers for many budgets at once are those for each alone.

#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "experiments/study/result_fields.h"
#include "experiments/study/run.h"
#include "experiments/study/summary.h"
#include "sim/io/quantity.h"
#include "sim/io/schedule/schedule_file.h"

namespace plimsoll {
namespace {

/// All but what is measured.
Json unmeasured(const Question& question, const Problem& problem, const Answer& answer) {
  Json json = to_json(result_of(question, problem, answer));
  json.erase("solve_s");
  json.erase("simulate_s");
  json["reserved"] = Json::array();
  for (const ReservedPeak& peak : answer.reserved) json["reserved"].push_back(peak.reserved.count);
  json["schedule_budget"] = answer.schedule && answer.schedule->budget ? answer.schedule->budget->count : -1;
  return json;
}

TEST_CASE("what splits are chosen in is a part of solving", "[answer]") {
  const Question question{.trace = "transformer:view=graph,layers=1,width=64,heads=4,sequence=32,vocabulary=100",
                          .platform = "h100_sxm_8",
                          .strategy = parse_pipeline("optcnn(devices=2)", "test"),
                          .engine = Engine::event};
  const BudgetedProblem made = budgeted_problem_of(question);
  CHECK(made.transform_s > 0);
  const std::optional<Bytes> budgets[] = {Bytes{1'000'000'000}, Bytes{2'000'000'000}};
  constexpr double search_s = 1000;
  for (const Answer& each : answer(question, made.problem, budgets, search_s)) {
    CHECK(each.solve_s > search_s / 2);
    CHECK(each.solve_s < search_s);
  }
}

TEST_CASE("a schedule that answers several budgets is looked at once, and answers each as if it were alone",
          "[answer]") {
  const auto question =
      GENERATE(Question{.trace = "uniform:9",
                        .platform = "ideal",
                        .strategy = parse_pipeline("rotor", "test"),
                        .engine = Engine::event},
               Question{.trace = "uniform:9",
                        .platform = "ideal",
                        .strategy = parse_pipeline("chen_sqrt", "test"),
                        .engine = Engine::event,
                        .allocator = usual(AllocatorKind::cuda)},
               Question{.trace = "uniform:9",
                        .platform = "ideal",
                        .strategy = parse_pipeline("rotor", "test"),
                        .engine = Engine::simgrid,
                        .allocator = usual(AllocatorKind::cuda_expandable)},
               Question{.trace = "resnet50_b8_cpu",
                        .platform = "ideal",
                        .strategy = parse_pipeline("chen_sqrt", "test"),
                        .engine = Engine::event,
                        .allocator = usual(AllocatorKind::cuda)},  // which reserves less where it has less
               Question{.trace = "resnet50_b8_cpu",
                        .platform = "cpu_host",
                        .strategy = parse_pipeline("rotor(slots=100)", "test"),
                        .engine = Engine::simgrid},  // on which SimGrid slows kernels down
               Question{.trace = "resnet50_b8_cpu",
                        .platform = "cpu_host",
                        .strategy = parse_pipeline("offload_greedy", "test"),
                        .engine = Engine::simgrid});
  INFO(question.trace << " " << question.strategy.text << " on " << question.platform);
  const Problem problem = problem_of(question);
  const Bytes whole = *smallest_feasible(problem, parse_spec("store_all", "test")),
              least = *smallest_feasible(problem, question.strategy.passes);
  std::vector<std::optional<Bytes>> budgets{std::nullopt};
  for (std::int64_t i = -2; i <= 8; ++i) budgets.emplace_back(least + Bytes{(whole - least).count / 7 * i});
  budgets.push_back(budgets[4]);
  const std::vector<Answer> together = answer(question, problem, budgets);
  REQUIRE(together.size() == budgets.size());
  std::set<double> simulated;
  std::set<std::string> schedules;
  for (std::size_t b = 0; b < budgets.size(); ++b) {
    const Answer alone = answer(question, problem, std::span(&budgets[b], 1)).front();
    INFO("budget " << b);
    CHECK(unmeasured(question, problem, together[b]).dump() == unmeasured(question, problem, alone).dump());
    if (!alone.feasible()) continue;
    simulated.insert(together[b].simulate_s);  // no two simulations take the same time
    Schedule schedule = *alone.schedule;
    schedule.budget.reset();
    schedules.insert(schedule_text(schedule, ""));
  }
  CHECK(simulated.size() <= schedules.size());
  CHECK(schedules.size() < budgets.size() - 2);
}

TEST_CASE("every answer says what the host holds", "[answer]") {
  const auto asked = [](const char* strategy) {
    return Question{.trace = "transformer:layers=2,width=64,heads=4,sequence=16,batch=4,vocabulary=32",
                    .platform = "rtx_4090_pcie4",
                    .strategy = parse_pipeline(strategy, "test"),
                    .optimizer = Optimizer::adam,
                    .engine = Engine::event};
  };
  for (const auto& [strategy, is_on_host] : {std::pair{"zero_offload", true}, std::pair{"store_all", false}}) {
    INFO(strategy);
    const Question question = asked(strategy);
    const Problem problem = problem_of(question);
    const std::vector<std::optional<Bytes>> budgets{std::nullopt};
    const Answer found = answer(question, problem, budgets).front();
    REQUIRE(found.feasible());
    Bytes most;
    std::string name;
    for (std::size_t m = 0; m < problem.platform.memories.size(); ++m) {
      const Memory& memory = problem.platform.memories[m];
      if (memory.device || found.timeline->peaks[m].bytes <= most) continue;
      most = found.timeline->peaks[m].bytes;
      name = memory.name;
    }
    CHECK((most > Bytes{0}) == is_on_host);
    const Json json = to_json(result_of(question, problem, found));
    CHECK(json["host_peak_bytes"] == most.count);
    CHECK(json["memories"].size() == (is_on_host ? 1 : 0));
    const std::string text = summary(question, problem, found), line = "  host memory      ";
    CHECK((text.find(line) != std::string::npos) == is_on_host);
    const std::string table = front_table(std::span(&found, 1), {});
    CHECK((table.find("host") != std::string::npos) == is_on_host);
    if (!is_on_host) continue;
    CHECK(json["memories"][0]["name"] == name);
    CHECK(json["memories"][0]["peak_live_bytes"] == most.count);
    CHECK(text.find(format_bytes(most)) != std::string::npos);
    CHECK(table.find(format_bytes(most)) != std::string::npos);
  }
}

}  // namespace
}  // namespace plimsoll
