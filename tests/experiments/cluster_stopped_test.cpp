// A search of `cluster` that is told to end before it is through: by who asks, after a time, or by Ctrl-C.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/experiments/cluster_asked.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {

TEST_CASE("a search of a cluster tells how far it is, and ends when it is told to", "[cluster]") {
  const ClusterAsked asked(cluster_model(3), {}, 8, "points=100000,chunks=2", Optimizer::adam, Bytes{1'200'000});
  ClusterProblems problems(asked.question, asked.trace, asked.platform);
  ClusterQuestion question = problems.question();
  std::vector<ClusterProgress> told;
  std::vector<std::size_t> left;
  question.goes_on = [&](const ClusterProgress& now) {
    told.push_back(now);
    left.push_back(now.left());
    return true;
  };
  const ClusterAnswer whole = cluster_search(question, asked.options());
  REQUIRE(whole.is_proven);
  CHECK_FALSE(whole.is_stopped);
  const Seconds best = *whole.rows[*whole.best].outcome->makespan;
  REQUIRE(told.size() > 20U);
  std::optional<std::size_t> first_with_best;
  for (std::size_t k = 0; k < told.size(); ++k) {
    CHECK(told[k].points == whole.points);
    CHECK(told[k].bound <= best);
    CHECK(left[k] <= whole.points);
    if (told[k].best) CHECK(*told[k].best >= best);
    if (told[k].best && !first_with_best) first_with_best = k;
    if (k == 0) continue;
    CHECK(told[k].bounded >= told[k - 1].bounded);
    CHECK(told[k].simulated >= told[k - 1].simulated);
    if (told[k].simulated > 0) CHECK(told[k].bounded == whole.points);
  }
  REQUIRE(first_with_best);
  for (const std::size_t calls : {std::size_t{0}, *first_with_best, *first_with_best + 1}) {
    std::size_t called = 0;
    question.goes_on = [&](const ClusterProgress&) { return called++ < calls; };
    const ClusterAnswer found = cluster_search(question, asked.options());
    CAPTURE(calls, called);
    CHECK(found.is_stopped);
    REQUIRE(found.best);
    CHECK(found.simulated < whole.simulated);
    CHECK(found.bound <= best);
    CHECK(*found.rows[*found.best].outcome->makespan >= best);
    CHECK(called <= calls + *first_with_best + 1);
  }
}

namespace {

std::string searching(const std::string& options) {
  return "simulate --json --trace transformer:layers=4,width=1024,heads=16,view=graph --platform a100_sxm_8 --strategy "
         "'cluster(chunks=2" +
         options + ")' --optimizer adam --engine event --micro-batches 16 --memory '1 GB'";
}

}  // namespace

TEST_CASE("after its time the search of a cluster ends with the best so far, and says how far that may be",
          "[cluster][program]") {
  const ProgramRun run = plimsoll(searching("") + " --timeout '1 ms'");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  const nlohmann::json made = nlohmann::json::parse(run.out);
  CHECK(made["note"].get<std::string>().find("; stopped before its end; no other takes less than ") !=
        std::string::npos);
  CHECK(made["gap"] > 0);
}

TEST_CASE("who interrupts the search of a cluster gets the best so far, or nothing before there is one",
          "[cluster][program][eleventh-5]") {
  const auto interrupted_after = [](const std::string& seconds) {
    const ProgramRun run =
        plimsoll(searching(",offload=auto,updates=auto,points=1000000"), "timeout --preserve-status -s INT " + seconds);
    INFO(run.err);
    REQUIRE((run.exit_code == 0 || run.exit_code == 130));
    if (run.exit_code == 130) CHECK(run.out.empty());
    if (run.exit_code == 0) CHECK(nlohmann::json::parse(run.out)["gap"] > 0);
    return run.exit_code;
  };
  CHECK(interrupted_after("0.2") == 130);
  CHECK(interrupted_after("6") == 0);
}

TEST_CASE("a timeout is refused where nothing ends with its best", "[cluster][program]") {
  const auto refused = [](const std::string& arguments, const std::string& says) {
    const ProgramRun run = plimsoll(arguments);
    CHECK(run.exit_code == 2);
    CHECK(run.err.find(says) != std::string::npos);
  };
  const std::string chain = "simulate --trace uniform:4 --platform ideal --engine event --strategy ";
  refused(chain + "rotor --timeout '1 s'", "--timeout: only the search of 'cluster' ends with its best, found 'rotor'");
  refused(chain + "cluster --timeout '0 s'", "--timeout: expected more than 0 s, found '0 s'");
  refused(chain + "cluster --timeout soon", "--timeout: ");
  refused(chain + "cluster --timeout '1 s' --memory front", "--timeout: with '--memory front' each search goes on");
}

}  // namespace plimsoll
