// Output that cannot be written, too little memory, and names that no terminal should be given: through the program.

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "sim/io/text_file.h"
#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

const std::string of_six_stages = " --trace uniform:6 --platform ideal --engine event ";

TEST_CASE("output that cannot be written ends with exit code 4", "[program][eleventh-2]") {
  const TemporaryFolder folder;
  write_text_file(folder / "s.json", plimsoll("plan" + of_six_stages + "--strategy store_all").out);
  const std::vector<std::string> commands{
      "plan" + of_six_stages + "--strategy store_all",
      "simulate" + of_six_stages + "--strategy store_all",
      "simulate --json" + of_six_stages + "--strategy store_all",
      std::string("list strategies"),
      std::string("describe rotor"),
      "bounds --trace uniform:6 --platform ideal",
      std::string("help"),
      "check --trace uniform:6 --platform ideal --schedule " + (folder / "s.json").string()};
  for (const std::string& command : commands) {
    INFO(command);
    const ProgramRun full = plimsoll(command + " > /dev/full");
    CHECK(full.exit_code == 4);
    CHECK(full.err.ends_with("cannot write to the standard output\n"));  // plan tells what it verified first
    // The reader is gone before anything is written: no signal, no success, and no complaint either.
    const ProgramRun closed =
        plimsoll("help > /dev/null; { { sleep 0.2; " PLIMSOLL_PROGRAM " " + command + "; echo $? >&2; } | true; }");
    CHECK(closed.err.ends_with("4\n"));
    CHECK(closed.err.find("cannot write") == std::string::npos);
  }
  for (const std::string option : {"--schedule-out", "--timeline", "--memory-profile"}) {
    INFO(option);
    const ProgramRun run = plimsoll("simulate" + of_six_stages + "--strategy store_all " + option + " /dev/full");
    CHECK(run.exit_code == 4);
    CHECK(run.err == "/dev/full: cannot write: No space left on device\n");
    CHECK(plimsoll("simulate" + of_six_stages + "--strategy store_all " + option + " /nowhere/x").exit_code == 4);
  }
}

TEST_CASE("too little memory ends with exit code 4", "[program]") {
  const ProgramRun run = plimsoll("help > /dev/null; ulimit -d 60000; " PLIMSOLL_PROGRAM
                                  " simulate --trace random:stages=1000,seed=1 --platform ideal --engine event "
                                  "--strategy 'rotor(slots=500)' --memory 300MB");
  CHECK(run.exit_code == 4);
  CHECK(run.err == "plimsoll: not enough memory\n");
}

/// The chain `uniform:6` with another name, in a file of this name.
std::string renamed(const TemporaryFolder& folder, const std::string& file, const std::string& name) {
  const std::string text = text_of("tests/experiments/worked_example.json");
  const std::regex old_name("\"name\": *\"[^\"]*\"");
  std::ofstream(folder / file, std::ios::binary)
      << std::regex_replace(text, old_name, "\"name\": \"" + name + "\"", std::regex_constants::format_first_only);
  return (folder / file).string();
}

TEST_CASE("paths are bytes, and what is shown of them is UTF-8", "[program]") {
  const TemporaryFolder folder;
  const std::string path = renamed(folder, "caf\xE9.json", "caf");
  const ProgramRun run = plimsoll("simulate --json --platform ideal --strategy store_all --trace " + path);
  CHECK(run.exit_code == 0);
  const auto json = nlohmann::json::parse(run.out);
  CHECK(json["trace"] == (folder / "caf\\xE9.json").string());
  const ProgramRun missing =
      plimsoll("simulate --platform ideal --strategy store_all --trace " + (folder / "th\xE9.json").string());
  CHECK(missing.exit_code == 2);
  CHECK(missing.err == (folder / "th\\xE9.json").string() + ": cannot read: No such file or directory\n");
}

TEST_CASE("control characters in names do not reach the terminal", "[program]") {
  const TemporaryFolder folder;
  const std::string path = renamed(folder, "t.json", "a\\u001b[2Jb");
  const ProgramRun run = plimsoll("simulate --platform ideal --strategy store_all --trace " + path);
  CHECK(run.exit_code == 0);
  CHECK(run.out.find('\x1b') == std::string::npos);
  CHECK(run.out.starts_with("a\\x1B[2Jb with store_all"));
  const std::string long_word(5000, 'x');
  const ProgramRun unknown = plimsoll("simulate --platform ideal --strategy " + long_word + " --trace uniform:6");
  CHECK(unknown.exit_code == 2);
  CHECK(unknown.err.size() < 1100);
}

TEST_CASE("a model with a very long name has its figures", "[program][eleventh-6]") {
  const TemporaryFolder folder;
  renamed(folder, "t.json", std::string(300, 'n'));
  write_text_file(folder / "e.yaml",
                  "format: plimsoll.experiment.v1\nname: n\ntraces: t.json\nplatforms: ideal\nstrategies: store_all\n");
  const std::string out = (folder / "out").string();
  REQUIRE(plimsoll("sweep " + (folder / "e.yaml").string() + " -o " + out).exit_code == 0);
  const ProgramRun report = plimsoll("report " + out);
  CHECK(report.exit_code == 0);
  CHECK(report.err.find("Traceback") == std::string::npos);
  CHECK(std::filesystem::exists(folder / ("out/" + std::string(120, 'n') + ".png")));
}

}  // namespace
}  // namespace plimsoll
