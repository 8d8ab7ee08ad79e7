// Choices of other programs on a real model: PyTorch's partitioner on Llama-3 8B, from the dump that the shipped trace
// is from (traces/shipped.md), as `recompute_ops` and as check --policy take it; and plans as such choices.

#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "sim/io/text_file.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {

// Simulated before by others' means, from the same dump: storing all takes 142.5 GB; PyTorch's schedule peaks at 38.24
// GB and takes 15.7 % longer with launches.
TEST_CASE("what PyTorch recomputes of Llama-3 8B needs and takes what others have simulated",
          "[recompute][published]") {
  const auto simulated = [&](const std::string& spec) {
    const ProgramRun run = plimsoll("simulate --json --engine event -p h200 -t llama3_8b_fsdp64 -s '" + spec + "'");
    REQUIRE(run.exit_code == 0);
    return nlohmann::json::parse(run.out);
  };
  const nlohmann::json all = simulated("store_all"),
                       again = simulated("recompute_ops(file=experiments/papers/llama3_8b/pytorch.txt)");
  CHECK(all["peak_bytes"].get<double>() == Approx(142.5e9).epsilon(0.0004));
  CHECK(again["peak_bytes"].get<double>() == Approx(38.24e9).epsilon(0.0002));
  CHECK(again["makespan_s"].get<double>() / all["makespan_s"].get<double>() == Approx(1.157).epsilon(0.0005));
}

TEST_CASE("a list of ops to recompute names each line that is no op's name", "[recompute]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "ops.txt").string(),
                    command = "simulate -p h200 -t llama3_8b_fsdp64 -s 'recompute_ops(file=" + file + ")'";
  write_text_file(file, "mm\n\nmm_1x\nno_such_op");
  const ProgramRun run = plimsoll(command);
  CHECK(run.exit_code == 2);
  CHECK(run.err.find(file +
                     ":3:1: no forward op of 'llama3_8b_fsdp64_seq8192_b2' is called 'mm_1x'; did you mean 'mm_1") !=
        std::string::npos);
  CHECK(run.err.find(file + ":4:1: no forward op of 'llama3_8b_fsdp64_seq8192_b2' is called 'no_such_op'") !=
        std::string::npos);
  write_text_file(file, "\n");
  CHECK(plimsoll(command).err.find("'" + file + "' names no op") != std::string::npos);
  CHECK(plimsoll("simulate -p h200 -t llama3_8b_fsdp64 -s 'recompute_ops(file=" + file + "x)'").exit_code == 2);
}

namespace {

constexpr const char* on_h200 = " -t llama3_8b_fsdp64 -p h200 ";

nlohmann::json simulated_by(const std::string& spec, const std::string& options = "") {
  const ProgramRun run = plimsoll("simulate --json --engine event" + (on_h200 + options) + " -s '" + spec + "'");
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

nlohmann::json judged_policy(const std::string& file, const std::string& options = "") {
  const ProgramRun run = plimsoll("check --json --policy " + file + on_h200 + options);
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return nlohmann::json::parse(run.out);
}

TEST_CASE("a plan's list of ops to recompute gives the same schedule", "[policy]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "again.txt").string();
  for (const char* budget : {"60 GB", "20 GB"}) {
    INFO(budget);
    const std::string memory = std::string(" -m '") + budget + "'", spec = "snapshot(offload=no)";
    REQUIRE(plimsoll("export recompute-ops" + (on_h200 + memory) + " -s '" + spec + "' -o " + file).exit_code == 0);
    const nlohmann::json plan = simulated_by(spec, memory), again = simulated_by("recompute_ops(file=" + file + ")"),
                         verdict = judged_policy(file);
    CHECK(again["makespan_s"].get<double>() == Approx(plan["makespan_s"].get<double>()).epsilon(1e-9));
    CHECK(again["peak_bytes"] == plan["peak_bytes"]);
    CHECK(verdict["makespan_s"].get<double>() == Approx(plan["makespan_s"].get<double>()).epsilon(1e-9));
    CHECK(verdict["peak_bytes"] == plan["peak_bytes"]);
    CHECK(verdict["above_recomputing_bound"].get<double>() >= 0);
  }
}

TEST_CASE("a plan with copies goes out for torchtitan and fits as it is read back", "[policy][eleventh-10]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "tags.json").string(), memory = " -m '60 GB'";
  REQUIRE(plimsoll("export torchtitan" + (on_h200 + memory) + " -s snapshot -o " + file).exit_code == 0);
  const nlohmann::json tags = nlohmann::json::parse(read_text_file(file));
  CHECK(tags.size() == 1841);  // every op of the forward
  const nlohmann::json plan = simulated_by("snapshot", memory), verdict = judged_policy(file, memory);
  CHECK(verdict["repeated_ops"] == std::ranges::count(tags, nlohmann::json("MUST_RECOMPUTE")));
  CHECK(verdict["moved_values"].get<int>() > 0);
  CHECK(verdict["peak_bytes"].get<double>() <= 60e9);
  CHECK(verdict["makespan_s"].get<double>() == Approx(plan["makespan_s"].get<double>()).epsilon(0.01));
}

TEST_CASE("PyTorch's own choice is judged as it was simulated", "[policy][published]") {
  const nlohmann::json verdict = judged_policy("experiments/papers/llama3_8b/pytorch.txt");
  CHECK(verdict["peak_bytes"].get<double>() == Approx(38.24e9).epsilon(0.0002));
  CHECK(verdict["repeated_ops"] == 1639);
  CHECK(verdict["moved_values"] == 0);
  const ProgramRun less =
      plimsoll(std::string("check --policy experiments/papers/llama3_8b/pytorch.txt") + on_h200 + "-m '30 GB'");
  CHECK(less.exit_code == 1);
  CHECK(less.err.find("the smallest feasible budget is " + std::to_string(verdict["peak_bytes"].get<long long>())) !=
        std::string::npos);
}

TEST_CASE("what is wrong with a policy file is said with its place", "[policy]") {
  const TemporaryFolder folder;
  const std::string file = (folder / "policy").string(), check = "check --policy " + file + on_h200;
  const auto complaint = [&](const std::string& text) {
    write_text_file(file, text);
    const ProgramRun run = plimsoll(check);
    CHECK(run.exit_code == 2);
    return run.err;
  };
  const auto says = [](const std::string& err, const std::string& what) { return err.find(what) != std::string::npos; };
  CHECK(says(complaint("mm save\n  mm_1x offload # q\n"),
             file + ":2:3: no forward op of 'llama3_8b_fsdp64_seq8192_b2' is called 'mm_1x'; did you mean 'mm_1"));
  CHECK(says(complaint("mm MUST_RECOMPUT\n"), file + ":1:4: expected save, recompute, offload,"));
  CHECK(says(complaint("mm MUST_RECOMPUT\n"), "found 'MUST_RECOMPUT'; did you mean 'MUST_RECOMPUTE'?"));
  CHECK(says(complaint("mm save now\n"), file + ":1:9: 'now' follows a name and a choice"));
  CHECK(says(complaint("mm\nmm save\n"), file + ":2:1: 'mm' is named twice"));
  CHECK(says(complaint("{\"mm\": \"MUST_SAVE\",\n \"mn_1\": \"MUST_SAVE\"}"), file + ":2:"));
  CHECK(says(complaint("{\"mm\": 3}"), file + ":1:8: mm: expected"));
  CHECK(plimsoll("check --policy " + file + " -t llama3_8b_fsdp64").exit_code == 2);
  CHECK(plimsoll("check").exit_code == 2);
}

TEST_CASE("a format refuses a plan that it has no words for", "[policy][eleventh-3]") {
  const auto refusal = [&](const std::string& format, const std::string& spec) {
    const ProgramRun run = plimsoll("export " + format + on_h200 + "-m '60 GB' -s '" + spec + "'");
    CHECK(run.exit_code == 2);
    return run.err;
  };
  CHECK(refusal("recompute-ops", "snapshot").find("it moves what '") != std::string::npos);
  CHECK(refusal("deepcompile", "snapshot(offload=no)").find("which is not made of parameters only") !=
        std::string::npos);
  CHECK(refusal("torchtitan", "recompute_ops(ops=mm)").find("changes the model") != std::string::npos);
  CHECK(refusal("torchtitam", "snapshot").find("did you mean 'torchtitan'?") != std::string::npos);
  const ProgramRun none = plimsoll(std::string("export torchtitan") + on_h200 + "-m '5 GB' -s snapshot");
  CHECK(none.exit_code == 1);
}

}  // namespace
}  // namespace plimsoll
