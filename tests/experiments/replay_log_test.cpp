// plimsoll replay-log against the literal second implementation of DTR's rules.

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/experiments/run_program.h"
#include "tests/generate/dtr_oracle.h"
#include "traces/imports/dtr_log.h"

namespace plimsoll {
namespace {

constexpr const char* log_file = "traces/data/dtr_linear40.log";

TEST_CASE("replay-log has the clock, evictions and rematerializations of the rules, to the digit", "[dtr]") {
  const OpLog log = read_dtr_log(log_file);
  const std::int64_t needs = oracle_banishing_peak(log);
  for (const std::string heuristic : {"dtr", "dtr_eq", "local", "lru", "size", "msps"}) {
    for (const int percent : {100, 60, 35}) {
      const ProgramRun run = plimsoll(std::string("replay-log ") + log_file + " --json --heuristic " + heuristic +
                                      " --memory '" + std::to_string(percent) + " %'");
      INFO(heuristic << " at " << percent << " %\n" << run.err);
      const nlohmann::json result = nlohmann::json::parse(run.out);
      const OracleRun oracle = oracle_dtr(log, needs * percent / 100, heuristic, result["baseline_ns"]);
      CHECK(result["baseline_bytes"] == needs);
      CHECK(result["memory_budget_bytes"] == needs * percent / 100);
      CHECK((result["end"] == "finished") == (oracle.end == "finished"));
      CHECK((run.exit_code == 0) == (oracle.end == "finished"));
      CHECK(result["clock_ns"] == oracle.clock);
      CHECK(result["evictions"] == oracle.evictions);
      CHECK(result["eager_evictions"] == oracle.eager_evictions);
      CHECK(result["rematerializations"] == oracle.rematerializations);
      CHECK(result["peak_bytes"] == oracle.peak);
    }
  }
}

TEST_CASE("replay-log says what it ran and how it went", "[dtr]") {
  const ProgramRun run = plimsoll(std::string("replay-log ") + log_file);
  CHECK(run.exit_code == 0);
  CHECK(run.out ==
        std::string(log_file) +
            ": 80 calls, 120.00 ms, 42.00 MB without a budget\ndtr within unlimited memory: finished\n"
            "  clock               120.00 ms   120000001 ns, 1.0000 of the calls' time\n"
            "  evictions                   0   for want of room; 79 more when nobody referred to them any more\n"
            "  rematerialized              0   calls, 0 s\n"
            "  peak memory          42.00 MB   42000000 B\n");
  const std::string words = std::string("replay-log ") + log_file;
  const auto refusal = [&](const std::string& more) {
    const ProgramRun refused = plimsoll(words + more);
    CHECK(refused.exit_code == 2);
    return refused.err;
  };
  CHECK(refusal(" --heuristic lrx") ==
        "--heuristic: expected dtr, dtr_eq, local, lru, size, msps or random, found 'lrx'; did you mean 'lru'?\n");
  CHECK(refusal(" --memory 0%") == "--memory: expected a share above 0 % and up to 1000 %, found '0%'\n");
  CHECK(refusal(" --release banish") == "--release banish: with --heuristic local, lru, size or random only\n");
}

}  // namespace
}  // namespace plimsoll
