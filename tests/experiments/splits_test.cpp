// `plimsoll splits` from outside; costs are held against published ones where ../shared is there (PLIMSOLL_SHARED
// names it).

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "experiments/tables/split_problem.h"
#include "sim/io/text_file.h"
#include "tests/bad_input.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

/// Two nodes that both live at moment 3 and a third beside them; the second pair of the second edge is forbidden.
constexpr const char* small =
    R"({"problem": {"name": "small", "usage_limit": 10, "nodes": {"intervals": [[0, 5], [3, 9], [9, 12]],
        "costs": [[1, 9], [2, 8], [0, 0]], "usages": [[7, 2], [6, 1], [4, 5]]},
        "edges": {"nodes": [[1, 0], [1, 2]], "costs": [[0, 1, 5, 0], [0, 3, 4, 1000000000000000000]]}}})";

std::string refused(const std::string& text) {
  return complaint_of([&] { parse_split_problem(text, "p.json"); });
}

std::string with(std::string from, std::string to) {
  std::string text = small;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

// Choices (0, 0) cost 1 + 2 + 0 and keep 13 at moment 3; (0, 1) cost 1 + 8 + 5 + 4 and keep 8; (1, 0) 9 + 2 + 1 and
// keep 8.
TEST_CASE("splits chooses the cheapest that keeps the limit", "[splits]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "p.json").string();
  write_text_file(file, small);
  const auto json = [&](const std::string& options) {
    const ProgramRun run = plimsoll("splits " + file + " --json " + options);
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const nlohmann::json within = json("");
  CHECK(within["cost"] == 12);
  CHECK(within["peak_bytes"] == 8);
  CHECK(within["choices"] == nlohmann::json({1, 0, 0}));
  CHECK(within["name"] == "small");
  CHECK(json("--memory unlimited")["cost"] == 3);
  CHECK(json("--memory 13B")["cost"] == 3);
  CHECK(json("--memory 12B")["cost"] == 12);
  CHECK_FALSE(within["is_proven"]);
  CHECK(within["lower_bound"] <= 12);
  CHECK(json("--memory unlimited")["is_proven"]);
  const ProgramRun text = plimsoll("splits " + file);
  CHECK(text.out.starts_with(file + ": 3 nodes with 6 choices, 2 edges\n  cost  12, no less than "));
  CHECK(text.out.ends_with("\n  peak  8 B, limit 10 B\n"));
  CHECK(plimsoll("splits " + file + " --memory unlimited").out ==
        file + ": 3 nodes with 6 choices, 2 edges\n  cost  3, proven the least\n  peak  13 B\n");
  const ProgramRun none = plimsoll("splits " + file + " --memory 3B");
  CHECK(none.exit_code == 1);
  CHECK(none.err == file + ": no choices can be together and keep the limit\n");
}

// Both directions: the second edge is row by row of node 0. Choices (0, 1) cost 1 + 4, (1, 0) 2 + 3.
TEST_CASE("edges between the same nodes add up", "[splits]") {
  const SplitProblem problem = parse_split_problem(
      R"({"problem": {"nodes": {"intervals": [[0, 0], [0, 0]], "costs": [[0, 0], [0, 0, 0]], "usages": [[0, 0], [0, 0, 0]]},
          "edges": {"nodes": [[1, 0], [0, 1]], "costs": [[9, 2, 1, 9, 9, 9], [9, 4, 9, 3, 9, 9]]}}})",
      "p.json");
  REQUIRE(problem.table.edges.size() == 1);
  CHECK(problem.table.priced({0, 1}) == Seconds{1 + 4});
  CHECK(problem.table.priced({1, 0}) == Seconds{2 + 3});
  CHECK_FALSE(problem.table.limit);
}

TEST_CASE("tables of splits that make no sense are refused with their place", "[splits]") {
  CHECK(refused(with("\"usages\"", "\"usage\"")).starts_with("p.json:2:44: problem.nodes.usage: unknown key"));
  CHECK(refused(with("[7, 2]", "[7]")) ==
        "p.json:2:55: problem.nodes.usages[0]: expected as many as there are costs, 2, found 1");
  CHECK(refused(with("[3, 9]", "[9, 3]")) ==
        "p.json:1:82: problem.nodes.intervals[1]: expected two moments, the second not before the first");
  CHECK(refused(with("[1, 0]", "[1, 1]")) == "p.json:3:29: problem.edges.nodes[0]: expected two different nodes of 3");
  CHECK(refused(with("[0, 1, 5, 0]", "[0, 1, 5]")) ==
        "p.json:3:56: problem.edges.costs[0]: expected a cost for each pair of choices, 4, found 3");
  CHECK(refused(with("[1, 9]", "[-1, 9]")) == "p.json:2:20: problem.nodes.costs[0][0]: expected a cost of at least 0");
  CHECK(refused(with(", [9, 12]", "")) ==
        "p.json:1:73: problem.nodes.intervals: expected 3 lists, one for each node, found 2");
}

// No team of the contest had less (best of 20: 532,843 and 217,039; XLA 990,205 and 1,264,777), and none can. Costs and
// bytes of the choices are counted again from the file.
TEST_CASE("published problems of intra-operator parallelism are solved", "[splits][published]") {
  const char* shared = std::getenv("PLIMSOLL_SHARED");
  if (shared == nullptr) {
    WARN("PLIMSOLL_SHARED is not set: no published cost is compared");
    return;
  }
  const std::filesystem::path folder = std::filesystem::path(shared) / "data/intra_op";
  const auto solved = [&](const std::string& problem) {
    const std::filesystem::path file = folder / ("iopddl_" + problem + ".json.gz");
    const ProgramRun run = plimsoll("splits --json " + file.string());
    REQUIRE(run.exit_code == 0);
    const nlohmann::json made = nlohmann::json::parse(run.out);
    const nlohmann::json of = nlohmann::json::parse(read_text_file(file))["problem"];
    std::int64_t cost = 0;
    std::map<std::int64_t, std::int64_t> changes;
    const nlohmann::json &nodes = of["nodes"], &edges = of["edges"];
    for (std::size_t n = 0; n < nodes["costs"].size(); ++n) {
      const std::size_t choice = made["choices"][n];
      cost += nodes["costs"][n][choice].get<std::int64_t>();
      const auto bytes = nodes["usages"][n][choice].get<std::int64_t>();
      changes[nodes["intervals"][n][0]] += bytes;
      changes[nodes["intervals"][n][1]] -= bytes;
    }
    for (std::size_t e = 0; e < edges["nodes"].size(); ++e) {
      const std::size_t a = edges["nodes"][e][0], b = edges["nodes"][e][1];
      const std::size_t choice = made["choices"][a], other = made["choices"][b];
      cost += edges["costs"][e][choice * nodes["costs"][b].size() + other].get<std::int64_t>();
    }
    std::int64_t held = 0, peak = 0;
    for (const auto& [moment, change] : changes) peak = std::max(peak, held += change);
    CHECK(peak <= of["usage_limit"]);
    CHECK(static_cast<double>(cost) == made["cost"]);
    CHECK(peak == made["peak_bytes"]);
    return made;
  };
  for (const auto& [problem, least] : {std::pair("B", 532'843.0), std::pair("G", 217'039.0)}) {
    const nlohmann::json made = solved(problem);
    CHECK(made["cost"] == least);
    CHECK(made["lower_bound"].get<double>() == Approx(least).epsilon(1e-8));
  }
}

}  // namespace plimsoll
