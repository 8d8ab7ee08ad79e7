// What a shell and man(1) get of the program: completion and the manual page.

#include <catch2/catch.hpp>
#include <set>
#include <sstream>

#include "tests/experiments/run_program.h"

namespace plimsoll {
namespace {

/// What bash offers where the last of these words is being typed.
std::set<std::string> completions(const std::string& words) {
  const TemporaryFolder folder;
  std::ofstream(folder / "ask.sh") << "eval \"$(" PLIMSOLL_PROGRAM " completion bash)\"\n"
                                   << "COMP_WORDS=(" << words << ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n"
                                   << "_plimsoll\nprintf '%s\\n' \"${COMPREPLY[@]}\" >" << (folder / "offers").string()
                                   << "\n";
  REQUIRE(std::system(("bash " + (folder / "ask.sh").string()).c_str()) == 0);
  std::istringstream lines(text_of(folder / "offers"));
  std::set<std::string> offers;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) offers.insert(line);
  }
  return offers;
}

using Words = std::set<std::string>;

TEST_CASE("bash completes commands, options, and what options take", "[program]") {
  CHECK(completions("plimsoll sim") == Words{"simulate"});
  CHECK(completions("plimsoll re") == Words{"report", "replay", "replay-log", "reproduce"});
  CHECK(completions("plimsoll help com") == Words{"compare", "completion"});
  CHECK(completions("plimsoll simulate --me") == Words{"--memory", "--memory-profile"});
  CHECK(completions("plimsoll simulate --engine ''") == Words{"simgrid", "event"});
  CHECK(completions("plimsoll simulate -t x --platform h2") == Words{"h200"});
  CHECK(completions("plimsoll simulate --trace resnet5") == Words{"resnet50_b8_cpu"});
  CHECK(completions("plimsoll simulate -s rotor") == Words{"rotor", "rotor_floating"});
  CHECK(completions("plimsoll replay --backend c") == Words{"cpu", "cuda"});
  CHECK(completions("plimsoll list p") == Words{"platforms"});
  CHECK(completions("plimsoll simulate --schedule-out x") == Words{});  // files, which bash itself offers
}

TEST_CASE("the manual page has every command and option of the help pages", "[program]") {
  const std::string page = plimsoll("man").out, front = plimsoll("help").out;
  CHECK(page.starts_with(".TH PLIMSOLL 1 "));
  std::istringstream lines(front.substr(front.find("Subcommands:")));
  std::string line;
  std::getline(lines, line);
  std::size_t commands = 0;
  while (std::getline(lines, line) && line.starts_with("  ")) {
    if (line[2] == ' ') continue;
    const std::string name = line.substr(2, line.find(' ', 2) - 2);
    INFO(name);
    CHECK(page.find(".SS plimsoll " + name + "\n") != std::string::npos);
    std::istringstream help(plimsoll("help " + name).out);
    for (std::string row; std::getline(help, row);) {
      const std::size_t at = row.find("--");
      if (!row.starts_with("  -") || at == std::string::npos) continue;
      std::string option = row.substr(at, row.find_first_of(" =", at) - at), escaped;
      for (const char c : option) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
      INFO(option);
      CHECK(page.find(escaped) != std::string::npos);
    }
    ++commands;
  }
  CHECK(commands >= 17);
  if (std::system("command -v groff >/dev/null") != 0) {
    WARN("groff is not here: the manual page is not formatted");
    return;
  }
  CHECK(std::system(PLIMSOLL_PROGRAM " man | groff -man -Tutf8 -ww 2>&1 >/dev/null | grep . ") != 0);  // no warnings
}

}  // namespace
}  // namespace plimsoll
