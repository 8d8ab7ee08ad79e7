// What of a sweep's results is kept where the experiment, the program or the limits are others when it goes on.

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "experiments/report/report_table.h"
#include "experiments/study/build_name.h"
#include "experiments/sweep/sweep.h"
#include "experiments/sweep/sweep_store.h"
#include "sim/io/input_error.h"
#include "sim/io/text_file.h"
#include "tests/experiments/sweep/sweep_run.h"
#include "tests/experiments/temporary_folder.h"

namespace plimsoll {
namespace {

namespace fs = std::filesystem;

std::string experiment(const std::string& strategies, const std::string& memory, const std::string& more = "") {
  return "format: plimsoll.experiment.v1\nname: n\ntraces: ['uniform:6', 'uniform:9']\nplatforms: [ideal]\n"
         "strategies: [" +
         strategies + "]\nmemory: " + memory + "\nengine: event\n" + more;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// What a line says but for its numbers: solve_s tells whether it was run again.
std::string answer_in(const std::string& line) {
  Json record = Json::parse(line);
  record.erase("point");
  record.erase("case");
  return record.dump();
}

/// How many lines of the one file stand, but for their numbers, in the other.
std::size_t lines_kept(const std::vector<std::string>& before, const fs::path& after) {
  std::map<std::string, int> there;
  for (const std::string& line : lines_of(after)) ++there[answer_in(line)];
  std::size_t kept = 0;
  for (const std::string& line : before) kept += there.contains(answer_in(line)) ? 1 : 0;
  return kept;
}

TEST_CASE("an experiment that grows keeps its points, numbered as if it had always been as large", "[sweep]") {
  const TemporaryFolder folder;
  const std::string less = "[100 kB, capacity]", more = "[1 MB, 100 kB, 10 GB, capacity]";
  const std::pair<std::string, std::string> ways[] = {
      {"chen_sqrt, store_all, rotor", less},            // before, between and after those that are there
      {"store_all, rotor", more},                       // budgets
      {"store_all, periodic, chen_sqrt, rotor", more},  // both
  };
  const auto& [strategies, memory] = ways[GENERATE(0U, 1U, 2U)];
  write_text_file(folder / "e.yaml", experiment("store_all, rotor", less));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out") == 0);
  const std::vector<std::string> before = lines_of(folder / "out" / "results.jsonl");
  REQUIRE(before.size() == 8);
  write_text_file(folder / "e.yaml", experiment(strategies, memory));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = true}) == 0);
  REQUIRE(run_sweep(folder / "e.yaml", folder / "fresh") == 0);
  CHECK(lines_kept(before, folder / "out" / "results.jsonl") == 8);
  CHECK(results_of(folder / "out") == results_of(folder / "fresh"));
  CHECK(!fs::exists(folder / "out" / "results.jsonl.previous"));
  CHECK(report_table(read_sweep(folder / "out")) == report_table(read_sweep(folder / "fresh")));
}

TEST_CASE("an experiment that shrinks sets aside the points that it has no more", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", experiment("chen_sqrt, store_all, rotor", "[100 kB, 1 MB]"));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out") == 0);
  const std::vector<std::string> before = lines_of(folder / "out" / "results.jsonl");
  write_text_file(folder / "e.yaml", experiment("rotor", "[1 MB, 100 kB]"));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = true}) == 0);
  CHECK(lines_kept(before, folder / "out" / "results.jsonl") == 4);
  CHECK(lines_kept(before, folder / "out" / "results.jsonl.previous") == 8);
  CHECK(read_sweep(folder / "out").records.size() == 4);
}

TEST_CASE("results of another build are run again and kept aside", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", experiment("store_all, rotor", "[100 kB, 1 MB]"));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out") == 0);
  std::vector<std::string> lines = lines_of(folder / "out" / "results.jsonl");
  const std::string build = "\"build\":\"" + std::string(build_name()) + "\"";
  std::string text;
  for (std::size_t l = 0; l < lines.size(); ++l) {
    REQUIRE(lines[l].find(build) != std::string::npos);
    if (l % 2 == 0) lines[l].replace(lines[l].find(build), build.size(), "\"build\":\"0123456789ab\"");
    text += lines[l] + "\n";
  }
  write_text_file(folder / "out" / "results.jsonl", text);
  const SweepRun again = run_sweep_aloud(folder / "e.yaml", folder / "out", {.resume = true});
  CHECK(again.exit_code == 0);
  CHECK(again.messages.find("4 results are of other builds of the program than " + std::string(build_name()) +
                            " and are run again; they are in " +
                            (folder / "out" / "results.jsonl.previous").string()) != std::string::npos);
  CHECK(lines_kept(lines, folder / "out" / "results.jsonl") == 4);
  CHECK(lines_kept(lines, folder / "out" / "results.jsonl.previous") == 4);
  for (const std::string& line : lines_of(folder / "out" / "results.jsonl")) {
    CHECK(Json::parse(line)["build"] == build_name());
  }
}

TEST_CASE("what the limits stopped is run again where they are others, and only that", "[sweep]") {
  const TemporaryFolder folder;
  const std::string slow =
      "format: plimsoll.experiment.v1\nname: n\ntraces: 'random:stages=400,seed=1'\nplatforms: ideal\n"
      "strategies: [store_all, 'rotor(slots=exact)']\nengine: event\nmemory: 400 MB\n";
  write_text_file(folder / "e.yaml", slow + "timeout: 0.3 s\n");
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out") == 0);
  const std::vector<std::string> before = lines_of(folder / "out" / "results.jsonl");
  REQUIRE(before.size() == 2);
  REQUIRE(Json::parse(before[1])["reason"] == "stopped: took longer than its timeout of 300.00 ms");
  write_text_file(folder / "e.yaml", slow + "timeout: 0.4 s\n");
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = true}) == 0);
  const std::vector<std::string> after = lines_of(folder / "out" / "results.jsonl");
  REQUIRE(after.size() == 2);
  CHECK(after[0] == before[0]);
  CHECK(Json::parse(after[1])["reason"] == "stopped: took longer than its timeout of 400.00 ms");
}

TEST_CASE("shards of an experiment that grows are one sweep again once all have gone on", "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", experiment("store_all, rotor", "[100 kB, 1 MB]"));
  for (const std::uint32_t k : {1U, 2U}) REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.shard = {k, 2}}) == 0);
  std::vector<std::string> before = lines_of(folder / "out" / "results.1-of-2.jsonl");
  for (const std::string& line : lines_of(folder / "out" / "results.2-of-2.jsonl")) before.push_back(line);
  REQUIRE(before.size() == 8);
  write_text_file(folder / "e.yaml", experiment("periodic, store_all, chen_sqrt, rotor", "[100 kB, 1 MB]"));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = true, .shard = {1, 2}}) == 0);
  CHECK_THROWS_AS(read_sweep(folder / "out"), InputError);  // one of the two experiments, or the other?
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = true, .shard = {2, 2}}) == 0);
  const SweepContents contents = read_sweep(folder / "out");
  REQUIRE(run_sweep(folder / "e.yaml", folder / "fresh") == 0);
  CHECK(report_table(contents) == report_table(read_sweep(folder / "fresh")));
  CHECK(contents.records.size() == 16);
  CHECK(lines_kept(before, folder / "out" / "results.1-of-2.jsonl") +
            lines_kept(before, folder / "out" / "results.2-of-2.jsonl") ==
        8);
}

TEST_CASE("facts are planned once: a sweep that goes on takes them from its manifest, if this build planned them",
          "[sweep]") {
  const TemporaryFolder folder;
  write_text_file(folder / "e.yaml", experiment("store_all, rotor", "{from: smallest, to: store_all, count: 3}"));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out") == 0);
  Json manifest = Json::parse(read_text_file(folder / "out" / "manifest.json"));
  REQUIRE(manifest["smallest"].size() == 4);
  REQUIRE(manifest["cases"].size() == 2);
  // A fact that no plan would give tells whether it was used.
  const std::int64_t made_up = manifest["cases"][0]["store_all_bytes"].get<std::int64_t>() - 2;
  for (Json& least : manifest["smallest"]) least["smallest_feasible_bytes"] = made_up;
  const bool same_build = GENERATE(true, false);
  if (!same_build) manifest["identity"]["version"] = "plimsoll 0.1.0 (0123456789ab)";
  write_json_file(folder / "out" / "manifest.json", manifest);
  write_text_file(folder / "e.yaml", experiment("store_all, rotor", "{from: smallest, to: store_all, count: 2}"));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = true}) == 0);
  const SweepContents contents = read_sweep(folder / "out");
  CHECK((contents.cases.at(0).smallest == Bytes{made_up}) == same_build);
  CHECK((contents.cases.at(0).budgets.front() == Bytes{made_up}) == same_build);
}

TEST_CASE("a range from the smallest budget that a further strategy moves is another range", "[sweep]") {
  const TemporaryFolder folder;
  const std::string range = "{from: smallest, to: store_all, count: 3}";
  write_text_file(folder / "e.yaml", experiment("store_all, chen_sqrt", range));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out") == 0);
  const std::vector<std::string> before = lines_of(folder / "out" / "results.jsonl");
  write_text_file(folder / "e.yaml", experiment("store_all, chen_sqrt, rotor", range));
  REQUIRE(run_sweep(folder / "e.yaml", folder / "out", {.resume = true}) == 0);
  REQUIRE(run_sweep(folder / "e.yaml", folder / "fresh") == 0);
  CHECK(results_of(folder / "out") == results_of(folder / "fresh"));
  const std::size_t kept = lines_kept(before, folder / "out" / "results.jsonl");
  CHECK((kept >= 4 && kept < 12));  // at the peak of store_all, and where budgets happen to be the same
  CHECK(kept + lines_kept(before, folder / "out" / "results.jsonl.previous") == 12);
}

}  // namespace
}  // namespace plimsoll
