// verify as people use it who write plans without our code: lists of ops, their lines in messages, and the library.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

using nlohmann::json;

constexpr const char* paper_case = "tests/experiments/worked_example.json";

/// A list of ops in a file, for the worked example on the ideal platform.
struct Listed {
  TemporaryFolder folder;
  std::string file = (folder / "plan.order").string();

  ProgramRun verified(const std::string& list, const std::string& options = "") {
    std::ofstream(file) << list;
    return plimsoll(std::string("verify ") + file + " -t " + paper_case + " -p ideal " + options);
  }
  std::string complaint(const std::string& list) {
    const ProgramRun run = verified(list);
    CHECK(run.exit_code == 1);
    CHECK(run.out.empty());
    REQUIRE(run.err.starts_with(file));
    return run.err.substr(file.size());
  }
};

constexpr const char* plain = "first\nsecond\nloss\nloss backward\nsecond backward\nfirst backward\n";

TEST_CASE("verify takes a list of ops for plain training", "[program]") {
  Listed listed;
  const ProgramRun run = listed.verified(plain);
  CHECK(run.exit_code == 0);
  CHECK(run.out.starts_with("legal: 6 steps, 7.00 s, peak 22 B\n"));
  CHECK(listed.verified(std::string("# by hand\n\n  first \t\n") + (plain + 6)).out == run.out);
}

TEST_CASE("a list repeats an op, and only the runs that are read later save", "[program]") {
  // x 4, first saves nothing and makes 3, second makes 2 and saves 5: by hand as rotor's F_ck and F_all.
  Listed listed;
  const ProgramRun run =
      listed.verified("first\nsecond\nloss\nloss backward\nsecond backward\nfirst\nfirst backward\n", "--json");
  CHECK(run.exit_code == 0);
  const json verdict = json::parse(run.out);
  CHECK(verdict["makespan_s"] == 8);
  CHECK(verdict["steps"] == 7);
  CHECK(verdict["peak_bytes"] < 22);
  CHECK(verdict["class"] == "recompute");
}

TEST_CASE("verify says in which line a list is no plan", "[program]") {
  Listed listed;
  CHECK(listed.complaint("first\nloss\n").starts_with(":2: 'loss' reads "));
  CHECK(listed.complaint("first\nsecond\nloss\n") == ": 'loss backward' never runs\n");
  CHECK(listed.complaint("first\nsecond\nfree x2\n\nloss\n") == ":5: 'loss' reads 'x2': line 3 has freed 'x2'\n");
  CHECK(listed.complaint("first\nprefetch x0\n").starts_with(":2: cannot prefetch: 'x0' is not on the host"));
}

TEST_CASE("wrong words in a list are wrong input, with their places", "[program]") {
  Listed listed;
  const ProgramRun unknown = listed.verified("first\nsecnd\noffload nothing\n");
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.find(":2:1: no op of 'worked example' is called 'secnd'; did you mean 'second'?") !=
        std::string::npos);
  CHECK(unknown.err.find(":3:1: no tensor of 'worked example' is called 'nothing'") != std::string::npos);
  CHECK(listed.verified("plimsoll.order.v2\nfirst\n").exit_code == 2);
  std::ofstream(listed.file) << plain;
  const ProgramRun without = plimsoll("verify " + listed.file);
  CHECK(without.exit_code == 2);
  CHECK(without.err == listed.file + ": does not say which trace it is for; give --trace\n");
}

TEST_CASE("a plan over its budget is no result", "[program]") {
  Listed listed;
  CHECK(listed.verified(plain, "-m '22 B'").exit_code == 0);
  const ProgramRun over = listed.verified(plain, "-m '21 B'");
  CHECK(over.exit_code == 1);
  CHECK(over.out == "legal: 6 steps, 7.00 s, peak 22 B, over its budget of 21 B on 'gpu'\n");
}

TEST_CASE("a list says itself what it is for", "[program]") {
  Listed listed;
  const std::string trace = std::filesystem::absolute(paper_case).string();
  const std::string head = "plimsoll.order.v1\ntrace: " + trace + "\nplatform: ideal\nmemory: 21 B\n\n";
  std::ofstream(listed.file) << head << plain;
  CHECK(plimsoll("verify " + listed.file).exit_code == 1);
  CHECK(plimsoll("verify " + listed.file + " -m '22 B'").exit_code == 0);
}

/// The list that a schedule is: ops and copies in the order of its steps.
std::string list_of(const json& schedule, const json& trace) {
  std::string list;
  for (const json& step : schedule["steps"]) {
    if (step.contains("op")) {
      list += trace["ops"][step["op"].get<std::size_t>()]["name"].get<std::string>() + "\n";
    } else if (step.contains("route")) {
      const json& buffer = schedule["buffers"][step["reads"][0].get<std::size_t>()];
      list += step["kind"].get<std::string>() + " " +
              trace["tensors"][buffer["tensor"].get<std::size_t>()]["name"].get<std::string>() + "\n";
    }
  }
  return list;
}

TEST_CASE("the list of a plan comes to the same time and memory as its schedule", "[program][eleventh-10]") {
  const std::string name = "gpt4_ops_w256_t128_b4_cpu", on = " -t " + name + " -p rtx_4090_pcie4 ";
  const json trace = json::parse(text_of("traces/data/" + name + ".json"));
  const TemporaryFolder folder;
  const std::string planned = (folder / "plan.json").string(), listed = (folder / "plan.order").string();
  for (const char* strategy : {"store_all", "rockmate", "greedy_recompute", "'snapshot(offload=no)'"}) {
    CAPTURE(strategy);
    const std::string budget = strategy == std::string("store_all") ? "" : " -m '80 %'";
    REQUIRE(plimsoll("plan -s " + std::string(strategy) + on + budget + " -o " + planned).exit_code == 0);
    std::ofstream(listed) << list_of(json::parse(text_of(planned)), trace);
    const json of_schedule = json::parse(plimsoll("verify --json " + planned).out);
    const json of_list = json::parse(plimsoll("verify --json " + listed + on).out);
    CHECK(of_list["makespan_s"] == of_schedule["makespan_s"]);
    CHECK(of_list["peak_bytes"] == of_schedule["peak_bytes"]);
  }
  // Of a plan with copies: what a list leaves out are waits for them, which make it slower and smaller.
  REQUIRE(plimsoll("plan -s 'offload_greedy(chunks=1)'" + on + " -m '90 %' -o " + planned).exit_code == 0);
  std::ofstream(listed) << list_of(json::parse(text_of(planned)), trace);
  const json of_schedule = json::parse(plimsoll("verify --json " + planned).out);
  const json of_list = json::parse(plimsoll("verify --json " + listed + on).out);
  CHECK(of_list["class"] == "offload");
  CHECK(of_list["makespan_s"] <= of_schedule["makespan_s"]);
  CHECK(of_list["peak_bytes"] >= of_schedule["peak_bytes"]);
}

TEST_CASE("frees and waits of a list are heeded", "[program]") {
  Listed listed;
  const std::string trace = R"({"format": "plimsoll.trace.v1", "kind": "graph", "name": "two",
    "source": {"kind": "computed"},
    "tensors": [{"name": "x", "kind": "activation", "bytes": 8}, {"name": "y", "kind": "activation", "bytes": 4},
                {"name": "z", "kind": "activation", "bytes": 1}],
    "ops": [{"name": "a", "phase": "forward", "time_s": 1, "inputs": [], "outputs": [0]},
            {"name": "b", "phase": "forward", "time_s": 1, "inputs": [0], "outputs": [1]},
            {"name": "c", "phase": "forward", "time_s": 1, "inputs": [1], "outputs": [2]}]})";
  const std::string file = (listed.folder / "two.json").string();
  std::ofstream(file) << trace;
  std::ofstream((listed.folder / "slow.yaml").string())
      << "format: plimsoll.platform.v1\nname: slow\nsource: made up\n"
         "devices:\n  - {name: gpu, memory: unlimited, launch_overhead: 0 s, times: trace}\n"
         "memories:\n  - {name: host, size: unlimited, bandwidth: unlimited}\n"
         "links:\n  - {name: copy, between: [gpu, host], bandwidth: 2 Bps, latency: 0 s}\n";
  const auto verdict = [&](const std::string& list) {
    std::ofstream(listed.file) << list;
    const ProgramRun run =
        plimsoll("verify --json " + listed.file + " -t " + file + " -p " + (listed.folder / "slow.yaml").string());
    INFO(run.out << run.err);
    return json::parse(run.out);
  };
  CHECK(verdict("a\nb\nc\n")["peak_bytes"] == 12);
  CHECK(verdict("a\nb\nfree x\nc\n")["peak_bytes"] == 12);
  // 8 B leave at 2 B/s from 1 s to 5 s. Without a wait c runs from 2 s on, beside x.
  json late = verdict("a\noffload x\nb\nc\n");
  CHECK(late["peak_bytes"] == 13);
  CHECK(late["makespan_s"] == 5);
  late = verdict("a\noffload x\nb\nwait x\nc\n");  // c begins at 5 s, when x is gone
  CHECK(late["peak_bytes"] == 12);
  CHECK(late["makespan_s"] == 6);
  CHECK(late["class"] == "offload");
  late = verdict("a\noffload x\nb\nwait x\nprefetch x\nb\nc\n");  // back from 5 s to 9 s
  CHECK(late["makespan_s"] == 11);
  const json freed = verdict("a\nfree x\nb\nc\n");
  CHECK(freed["legal"] == false);
  CHECK(freed["violations"][0]["line"] == 3);
  CHECK(freed["violations"][0]["what"] == "'b' reads 'x': line 2 has freed 'x'");
}

TEST_CASE("verify says where a plan stands in the library", "[program]") {
  Listed listed;
  const std::string index = (listed.folder / "index.json").string();
  const std::string trace = std::filesystem::absolute(paper_case).string();
  const auto standing = [&](const std::string& rows, const std::string& options = "") {
    std::ofstream(index)
        << R"({"format": "plimsoll.memplanlib.v1", "instances": [{"name": "paper", "trace": ")" << trace
        << R"(", "platform": "ideal", "class": "recompute", "origin": "by hand", "store_all_bytes": 22,)"
        << R"( "budgets": [)" << rows << "]}]}";
    return listed.verified(plain, "--library " + index + " " + options);
  };
  const std::string by = R"(, "by": "somebody", "version": "1", "date": "2026-11-27"})";
  CHECK(standing(R"({"bytes": 21}, {"bytes": 22})")
            .out.find("  instance paper (recompute), budget 22 B: new best, the first plan\n") != std::string::npos);
  CHECK(standing(R"({"bytes": 30, "best": {"time_s": 7, "peak_bytes": 22)" + by + "}")
            .out.find("budget 30 B: as fast as the best known, 7.00 s by somebody, 2026-11-27\n") != std::string::npos);
  CHECK(standing(R"({"bytes": 30, "best": {"time_s": 8, "peak_bytes": 22)" + by + "}")
            .out.find("budget 30 B: new best, 12.50 % faster than 8.00 s by somebody") != std::string::npos);
  const ProgramRun slower = standing(R"({"bytes": 30, "best": {"time_s": 5.6, "peak_bytes": 22)" + by +
                                     R"(, "bound": {"time_s": 5.6)" + by + "}");
  CHECK(slower.out.find("budget 30 B: 25.00 % slower than the best known, 5.60 s") != std::string::npos);
  CHECK(standing(R"({"bytes": 21})").out.find("instance paper (recompute): above all of its budgets\n") !=
        std::string::npos);
  const json chosen = json::parse(standing(R"({"bytes": 22}, {"bytes": 30})", "--json -m '30 B'").out);
  CHECK(chosen["instance_budget_bytes"] == 30);
  CHECK(chosen["new_best"] == true);
  const ProgramRun faster_than_bound = standing(R"({"bytes": 30, "best": {"time_s": 5, "peak_bytes": 22)" + by +
                                                R"(, "bound": {"time_s": 6)" + by + "}");
  CHECK(faster_than_bound.exit_code == 2);
  CHECK(faster_than_bound.err.find("the best plan is faster than the bound") != std::string::npos);
}

TEST_CASE("a schedule whose steps state their own times has no place in the library", "[program]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "plan.json").string();
  REQUIRE(plimsoll(std::string("plan -s store_all -p ideal -t ") + paper_case + " -o " + file).exit_code == 0);
  json schedule = json::parse(text_of(file));
  schedule["steps"][1]["work_s"] = 0.5;
  schedule["steps"][1]["measured"] = true;
  std::ofstream(file) << schedule.dump();
  const ProgramRun run = plimsoll("verify " + file + " -t " + paper_case);
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("  no plan of the library: its steps state times of their own\n") != std::string::npos);
}

}  // namespace
}  // namespace plimsoll
