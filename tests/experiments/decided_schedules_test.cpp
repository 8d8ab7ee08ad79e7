// Schedule files keep what searches decided: commands that read them build the problem from that.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

constexpr const char* question =
    " -t transformer:layers=2,width=32,heads=4,sequence=16,batch=4,vocabulary=32,view=graph -p pcie_4x_rtx4090"
    " --optimizer momentum ";

/// A schedule of `megatron` in a file that says it is one of `alpa`, whose search would cut operators otherwise.
struct Decided {
  TemporaryFolder folder;
  std::string file = (folder / "decided.json").string();
  nlohmann::json schedule;

  Decided() {
    REQUIRE(plimsoll("plan -s megatron -o " + file + question).exit_code == 0);
    schedule = nlohmann::json::parse(text_of(file));
    REQUIRE(schedule["format"] == "plimsoll.schedule.v3");
    REQUIRE(schedule["decisions"].size() == 1);
    schedule["strategy"] = "alpa";
    schedule["decisions"][0]["strategy"] = "alpa";
  }

  ProgramRun asked(const std::string& command) {
    std::ofstream(file) << schedule.dump(1);
    return plimsoll(command + " --schedule " + file);
  }
};

TEST_CASE("what reads a schedule keeps its decisions and does not search", "[program]") {
  Decided decided;
  for (const char* command : {"check", "simulate", "bounds"}) {
    CAPTURE(command);
    const ProgramRun run = decided.asked(command);
    CHECK(run.exit_code == 0);
    CHECK(run.err.find("decides again") == std::string::npos);
  }
  CHECK(decided.asked("check").out.starts_with("legal: "));
}

TEST_CASE("a file from before there were decisions has them made again, and a note says so", "[program]") {
  Decided decided;
  decided.schedule["format"] = "plimsoll.schedule.v2";
  decided.schedule.erase("decisions");
  const ProgramRun other = decided.asked("check");
  CHECK(other.exit_code == 1);  // alpa cuts other operators than megatron did
  const std::string note = "note: " + decided.file + ": has no decisions (plimsoll.schedule.v3): '";
  CHECK(other.err.starts_with(note + "alpa' decides again\n"));
  decided.schedule["strategy"] = "megatron";
  const ProgramRun same = decided.asked("check");
  CHECK(same.exit_code == 0);
  CHECK(same.err == note + "megatron' decides again\n");
}

TEST_CASE("decisions that are not for the problem are wrong input, with their place", "[program]") {
  Decided decided;
  nlohmann::json& list = decided.schedule["decisions"];
  const nlohmann::json right = list;
  const auto refused = [&](const std::string& what) {
    const ProgramRun run = decided.asked("check");
    CHECK(run.exit_code == 2);
    CAPTURE(run.err);
    CHECK(run.err.starts_with(decided.file + ":"));
    CHECK(run.err.find(what) != std::string::npos);
    list = right;
  };
  list[0]["cuts"][1]["shares"]["tensor"] = "q";
  refused(": decisions[0].cuts[1].shares.tensor: 'layer0.");
  list[0]["cuts"][0]["op"] = 100'000;
  refused(": decisions[0].cuts[0].op: 100000 of ");
  list[0]["mesh"][0]["ranks"] = 16;
  refused(": decisions[0].mesh: 16 ranks, but 'pcie_4x_rtx4090' has 4 devices");
  list[0]["mesh"][0]["ranks"] = 3;
  refused(": decisions[0]: '");
  list[0]["strategy"] = "tofu";
  refused(": decisions[0].strategy: expected 'alpa', found 'tofu'");
  list.push_back(right[0]);
  refused(": decisions[1]: of the strategies 1 decide");
}

}  // namespace
}  // namespace plimsoll
