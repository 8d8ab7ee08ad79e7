// A real log of DTR's authors where there is one, and the import command.

#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>

#include "experiments/commands/commands.h"
#include "sim/io/text_file.h"
#include "strategies/rematerialization/dtr/dtr_runtime.h"
#include "tests/bad_input.h"
#include "tests/generate/dtr_oracle.h"
#include "traces/imports/dtr_log.h"
#include "traces/trace_file.h"

namespace plimsoll {
namespace {

// PLIMSOLL_DTR_LOG names an unpacked log, such as those that simrd ships; without it there is nothing to check.
TEST_CASE("a real log replays by the letter of the rules", "[dtr]") {
  const char* path = std::getenv("PLIMSOLL_DTR_LOG");
  if (path == nullptr) {
    WARN("PLIMSOLL_DTR_LOG is not set: no real log is compared");
    return;
  }
  const OpLog log = read_dtr_log(path);
  const DtrBaseline baseline = dtr_baseline(log);
  CHECK(baseline.memory.count == oracle_banishing_peak(log));
  for (const std::string heuristic : {"dtr", "dtr_eq", "local", "lru", "size", "msps"}) {
    for (std::int64_t tenths = 10; tenths >= 2; --tenths) {
      const std::int64_t budget = baseline.memory.count * tenths / 10;
      const DtrReplay replay = replay_dtr_log(log, Bytes{budget}, *from_name<DtrHeuristic>(heuristic));
      const OracleRun oracle = oracle_dtr(log, budget, heuristic, baseline.compute);
      INFO(heuristic << " at " << tenths << " tenths");
      CHECK((replay.run.end == DtrEnd::finished) == (oracle.end == "finished"));
      CHECK((replay.run.end == DtrEnd::out_of_memory) == (oracle.end == "out of memory"));
      CHECK(replay.run.clock == oracle.clock);
      CHECK(replay.run.evictions == oracle.evictions);
      CHECK(replay.run.eager_evictions == oracle.eager_evictions);
      CHECK(replay.run.rematerializations == oracle.rematerializations);
      CHECK(replay.run.peak.count == oracle.peak);
      WARN(heuristic << " " << tenths << "/10: clock " << replay.run.clock << ", evictions " << replay.run.evictions
                     << ", rematerialisations " << replay.run.rematerializations << ", overhead " << replay.overhead);
    }
  }
}

int import_with(std::vector<std::string> words) {
  CLI::App app;
  int exit_code = -1;
  const std::string command_line = "plimsoll import";
  add_import_command(app, exit_code, command_line);
  std::ranges::reverse(words);  // as CLI11 wants them
  app.parse(std::move(words));
  return exit_code;
}

TEST_CASE("import writes a trace that reads back and says where it comes from", "[dtr]") {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string log = folder / "plimsoll_import_test.log", trace = folder / "plimsoll_import_test.json";
  write_text_file(log, R"({"ARGS":[],"INSTRUCTION":"CALL","NAME":"f","RESULT":["x"],"TIME":"1000"}
{"INSTRUCTION":"MEMORY","MEMORY":"100","NAME":"x"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"x"}
)");
  CHECK(import_with({"import", "dtr-log", log, "-o", trace}) == 0);
  const Trace read = read_trace(trace);
  CHECK(std::get<Graph>(read.model).ops.size() == 1);
  CHECK(source_of(read).notes.back().first == "made_by");
  CHECK(complaint_of([&] {
          import_with({"import", "dtr", log, "-o", trace});
        }) ==
        "import: unknown format 'dtr', expected checkmate-graph, dtr-log, pardnn-dag, dot, pipedream, "
        "dnn-partitioning, sapp, piper, kineto, pytorch-et, chakra, onnx, fx, pipeline-csv or "
        "memory-snapshot; did you mean 'dtr-log'?");
  std::filesystem::remove(log);
  std::filesystem::remove(trace);
}

}  // namespace
}  // namespace plimsoll
