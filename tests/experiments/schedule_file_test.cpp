// Schedules from files: simulated, judged and replayed with the trace and the platform that they name.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

constexpr const char* offloading =
    "--trace resnet50_b8_cpu --platform v100_pcie --strategy 'rotor|offload_greedy' --memory 700MB ";

nlohmann::json without_planning(const std::string& text) {
  nlohmann::json result = nlohmann::json::parse(text);
  for (const char* key : {"solve_s", "simulate_s", "gap", "note", "promised_makespan_s", "promised_peak_bytes"}) {
    result.erase(key);
  }
  return result;
}

TEST_CASE("a schedule file simulated is what it was when it was planned, by both engines", "[program]") {
  const TemporaryFolder folder;
  const std::string schedule = (folder / "s.json").string(), first = (folder / "first").string(),
                    second = (folder / "second").string();
  for (const std::string engine : {"simgrid", "event"}) {
    const ProgramRun planned =
        plimsoll(std::string("simulate ") + offloading + "--json --engine " + engine + " --schedule-out " + schedule +
                 " --timeline " + first + ".t.json --memory-profile " + first + ".csv");
    REQUIRE(planned.exit_code == 0);
    const ProgramRun simulated = plimsoll("simulate --schedule " + schedule + " --json --engine " + engine +
                                          " --timeline " + second + ".t.json --memory-profile " + second + ".csv");
    INFO(simulated.err);
    REQUIRE(simulated.exit_code == 0);
    CHECK(without_planning(simulated.out) == without_planning(planned.out));
    CHECK(nlohmann::json::parse(simulated.out)["promised_makespan_s"].is_null());
    CHECK(nlohmann::json::parse(simulated.out)["solve_s"].is_null());
    for (const std::string file : {".t.json", ".csv"}) {  // but for the command that made them
      const auto body = [](const std::string& text) {
        const std::size_t by = text.find("plimsoll 0"), end = text.find_first_of("\"\n", by);
        return text.substr(0, by) + text.substr(end);
      };
      CHECK(body(text_of(first + file)) == body(text_of(second + file)));
    }
  }
}

TEST_CASE("a schedule that is illegal is judged and not simulated", "[program]") {
  const TemporaryFolder folder;
  const std::string schedule = (folder / "s.json").string();
  REQUIRE(plimsoll("plan --strategy store_all --trace tests/experiments/worked_example.json --platform ideal -o " +
                   schedule)
              .exit_code == 0);
  std::string text = text_of(schedule);
  const std::size_t list = text.find("\"reads\":[", text.find("\"op\":4")) + 9;
  text.erase(list, text.find(',', list) + 1 - list);
  std::ofstream(schedule) << text;
  const ProgramRun run = plimsoll("simulate --schedule " + schedule);
  CHECK(run.exit_code == 1);
  CHECK(run.out.empty());
  CHECK(run.err.starts_with(schedule + ": missing_input: step 4 "));
}

TEST_CASE("a schedule over its budget is simulated all the same, and ends with 1", "[program]") {
  const TemporaryFolder folder;
  const std::string schedule = (folder / "s.json").string();
  REQUIRE(plimsoll("plan --strategy store_all --trace tests/experiments/worked_example.json --platform ideal "
                   "--memory 22B -o " +
                   schedule)
              .exit_code == 0);
  std::string text = text_of(schedule);
  const std::size_t budget = text.find("\"memory_budget_bytes\": 22");
  REQUIRE(budget != std::string::npos);
  text.replace(budget, 25, "\"memory_budget_bytes\": 21");
  std::ofstream(schedule) << text;
  const ProgramRun run = plimsoll("simulate --json --schedule " + schedule);
  CHECK(run.exit_code == 1);
  CHECK(run.err == schedule + ": does not fit: it keeps 22 B on 'gpu', over its 21 B\n");
  const nlohmann::json result = nlohmann::json::parse(run.out);
  CHECK(result["feasible"] == false);
  CHECK(result["peak_bytes"] == 22);
  CHECK(result["makespan_s"] == 7.0);
  CHECK(result["reason"] == "it keeps 22 B on 'gpu', over its 21 B");
}

TEST_CASE("a schedule finds its own platform and trace again, from whatever folder", "[program]") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "plans");
  std::string platform = text_of("platforms/ideal.yaml");
  platform.replace(platform.find("name: ideal"), 11, "name: mine");
  std::ofstream(folder / "mine.yaml") << platform;
  const std::string here = std::filesystem::current_path().string();
  const auto in = [&](const std::filesystem::path& where, const std::string& arguments) {
    const std::string command = "cd " + where.string() + " && " PLIMSOLL_PROGRAM " " + arguments + " >/dev/null 2>&1";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  REQUIRE(in(folder.path, "simulate -t mlp:layers=2 -p mine.yaml -s store_all --schedule-out plans/s.json") == 0);
  CHECK(in(folder.path, "replay --schedule plans/s.json --repetitions 1") == 0);
  CHECK(in(folder / "plans", "replay --schedule s.json --repetitions 1") == 0);
  CHECK(in(here, "check --schedule " + (folder / "plans/s.json").string()) == 0);
  CHECK(in(here, "simulate --schedule " + (folder / "plans/s.json").string()) == 0);
  CHECK(nlohmann::json::parse(text_of(folder / "plans/s.json"))["platform_from"] == "../mine.yaml");
  std::filesystem::rename(folder / "mine.yaml", folder / "elsewhere.yaml");
  const ProgramRun lost = plimsoll("replay --schedule " + (folder / "plans/s.json").string());
  CHECK(lost.exit_code == 2);
  CHECK(lost.err == (folder / "mine.yaml").string() + ": cannot read: No such file or directory\n");
  CHECK(in(folder.path, "replay --schedule plans/s.json -p elsewhere.yaml --repetitions 1") == 0);
}

TEST_CASE("what a schedule says itself is not asked beside it", "[program]") {
  CHECK(plimsoll("simulate --schedule s.json --strategy rotor").err.starts_with("plimsoll simulate: "));
  CHECK(plimsoll("simulate --schedule s.json --strategy rotor").exit_code == 2);
  CHECK(plimsoll("simulate --trace uniform:4 --platform ideal").err.find("--strategy is required") !=
        std::string::npos);
}

// A planner of chains cuts the graph; the file names the graph, and its reader has to cut it, too.
TEST_CASE("a schedule for the chain that a strategy makes of a graph is read again", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "s.json").string();
  for (const std::string strategy :
       {"full_recompute", "rotor", "rotor|offload_greedy", "1f1b(stages=2)|rotor", "pardnn|greedy_recompute"}) {
    INFO(strategy);
    const ProgramRun made = plimsoll("simulate -t gpt:layers=2,view=graph -p h100_sxm_8 --micro-batches 2 --json -s '" +
                                     strategy + "' --engine event --schedule-out " + file);
    REQUIRE(made.exit_code == 0);
    const ProgramRun again = plimsoll("simulate --json --engine event --schedule " + file);
    INFO(again.err);
    REQUIRE(again.exit_code == 0);
    for (const char* key : {"peak_bytes", "makespan_s"}) {
      CHECK(nlohmann::json::parse(made.out)[key] == nlohmann::json::parse(again.out)[key]);
    }
  }
}

}  // namespace
}  // namespace plimsoll
