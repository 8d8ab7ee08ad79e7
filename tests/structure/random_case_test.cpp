// How a failure is repeated: planted ones in a child, and then what it says to type.

#include "tests/random_case.h"

#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <stdexcept>

namespace plimsoll {
namespace {

// --- planted: run by the tests below only

TEST_CASE("a planted failure, of \"one\" device's [second] loop", "[.planted]") {
  for (const std::string spec : {"a", "b"}) {
    for (const RandomCase seed : random_cases(10, 29)) {
      std::cout << "ran " << spec << " " << seed << "\n";
      if (seed == 15) break;
      CHECK_FALSE((spec == "b" && (seed == 12 || seed == 14)));
    }
  }
  if (all_cases()) std::cout << "all of them\n";
}

TEST_CASE("a planted exception", "[.planted]") {
  for (const RandomCase seed : random_cases(0, 9)) {
    std::cout << "ran " << seed << "\n";
    if (seed == 4) throw std::runtime_error("planted");
  }
}

TEST_CASE("a planted failure behind the cases", "[.planted]") {
  std::size_t ran = 0;
  for (const RandomCase seed : random_cases(0, 9)) ran += seed < 5 ? 1 : 0;
  CHECK(ran == 6);
}

TEST_CASE("nothing planted", "[.planted]") {
  for (const RandomCase seed : random_cases(3, 5)) CHECK(seed > 2);
}

TEST_CASE("a planted failure among fewer cases", "[.planted]") {
  for (const std::string spec : {"a", "b"}) {
    for (const RandomCase seed : fewer_cases(1, 24)) {
      std::cout << "ran " << spec << " " << seed << "\n";
      CHECK_FALSE((spec == "b" && seed >= 5));
    }
  }
  for (const RandomCase seed : fewer_cases(3, 6)) std::cout << "ran few " << seed << "\n";
  std::cout << "cases of 66: " << cases_of(66) << "\n";
}

TEST_CASE("a 33rd of cases", "[.planted]") {
  for (const RandomCase seed : fewer_cases(1, 99, 33)) std::cout << "ran " << seed << "\n";
}

// --- the mechanism

std::string run(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen(("(unset PLIMSOLL_TESTS PLIMSOLL_TURN; " + command + ") 2>&1").c_str(), "r"), pclose);
  REQUIRE(pipe);
  std::string said;
  std::array<char, 4096> piece{};
  for (std::size_t n = 0; (n = std::fread(piece.data(), 1, piece.size(), pipe.get())) > 0;) {
    said.append(piece.data(), n);
  }
  return said;
}

/// The test program itself.
std::string this_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

/// The line behind the words that announce it.
std::string line_to_repeat(const std::string& said) {
  const std::string announced = "to repeat it:\n";
  const std::size_t at = said.find(announced);
  REQUIRE(at != std::string::npos);
  CHECK(said.find(announced, at + 1) == std::string::npos);  // one line a test
  const std::size_t begin = at + announced.size();
  return said.substr(begin, said.find('\n', begin) - begin);
}

std::size_t times(const std::string& what, const std::string& said) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = said.find(what, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST_CASE("the line that a failing random test prints runs the case that failed, and no other", "[repeat]") {
  const std::string name = "'a planted failure\\, of \\\"one\\\" device'\\''s \\[second] loop'";
  const std::string program = std::filesystem::proximate(this_program());
  const std::string first = run(this_program() + " " + name);
  CHECK(times("ran ", first) == 12);
  CHECK(times("all of them", first) == 1);
  const std::string line = line_to_repeat(first);
  CHECK(line == "PLIMSOLL_CASE=22 " + program + " " + name);  // 20 cases of a, of which 6 ran, then b's third
  const std::string again = run(line);
  CHECK(times("ran ", again) == 1);
  CHECK(times("ran b 12\n", again) == 1);
  CHECK(times("all of them", again) == 0);
  CHECK(times("assertions: 1 | 1 failed", again) == 1);
  CHECK(line_to_repeat(again) == line);
}

TEST_CASE("where a run tries an eleventh of the cases, its line and that of a run with all cases mean the same case",
          "[repeat]") {
  const std::string test =
      std::filesystem::proximate(this_program()).string() + " 'a planted failure among fewer cases'";
  const std::string eleventh = run(test);
  CHECK(times("ran a 1\n", eleventh) + times("ran a 12\n", eleventh) + times("ran a 23\n", eleventh) == 3);
  CHECK(times("ran few 3\n", eleventh) + times("ran few 5\n", eleventh) == 2);
  CHECK(times("ran ", eleventh) == 8);
  CHECK(times("cases of 66: 6\n", eleventh) == 1);
  const std::string line = line_to_repeat(eleventh);
  CHECK(line == "PLIMSOLL_CASE=35 " + test);  // 24 cases of a, of which 3 ran, then b's twelfth
  const std::string again = run(line);
  CHECK(times("ran ", again) == 1);
  CHECK(times("ran b 12\n", again) == 1);

  const std::string all = run("PLIMSOLL_TESTS=all " + test);
  CHECK(times("ran ", all) == 24 + 24 + 4);
  CHECK(times("cases of 66: 66\n", all) == 1);
  const std::string line_of_all = line_to_repeat(all);
  CHECK(line_of_all == "PLIMSOLL_TESTS=all PLIMSOLL_CASE=28 " + test);
  for (const std::string& command : {line_of_all, "PLIMSOLL_CASE=28 " + test}) {
    const std::string one = run(command);
    CHECK(times("ran ", one) == 1);
    CHECK(times("ran b 5\n", one) == 1);
  }
  const std::string wrong = run("PLIMSOLL_TESTS=al " + test + "; echo \"exit code $?\"");
  CHECK(wrong == "PLIMSOLL_TESTS: expected 'all', found 'al'\nexit code 2\n");
}

TEST_CASE("a run's turn says which eleventh it tries, by the same numbers, and all turns together try all",
          "[repeat]") {
  const std::string test =
      std::filesystem::proximate(this_program()).string() + " 'a planted failure among fewer cases'";
  const std::string third = run("PLIMSOLL_TURN=14 " + test);
  CHECK(times("ran a 4\n", third) + times("ran a 15\n", third) == 2);
  CHECK(times("ran few 4\n", third) + times("ran few 6\n", third) == 2);  // turn 14 is as turn 3, and that is odd
  CHECK(times("ran ", third) == 6);
  CHECK(line_to_repeat(third) == "PLIMSOLL_CASE=38 " + test);  // b's fifteenth
  CHECK(times("ran b 15\n", run("PLIMSOLL_TURN=1 PLIMSOLL_CASE=38 " + test)) == 1);
  std::string all;
  for (int turn = 0; turn < 11; ++turn) all += run("PLIMSOLL_TURN=" + std::to_string(turn) + " " + test);
  for (int seed = 1; seed <= 24; ++seed) CHECK(times("ran a " + std::to_string(seed) + "\n", all) == 1);
  CHECK(times("ran ", run("PLIMSOLL_TURN=3 PLIMSOLL_TESTS=all " + test)) == 24 + 24 + 4);
  const std::string of_all =
      line_to_repeat(run("PLIMSOLL_TURN=3 " + this_program() + " 'a planted failure behind the cases'"));
  CHECK(of_all == "PLIMSOLL_TURN=3 " + std::filesystem::proximate(this_program()).string() +
                      " 'a planted failure behind the cases'");
  const std::string wrong = run("PLIMSOLL_TURN=x " + test + "; echo \"exit code $?\"");
  CHECK(wrong == "PLIMSOLL_TURN: expected a number, found 'x'\nexit code 2\n");
}

TEST_CASE("a stand-in of eleventh 0", "[eleventh-0]") {
  SUCCEED();
}
TEST_CASE("a stand-in of eleventh 4", "[eleventh-4]") {
  SUCCEED();
}
TEST_CASE("a stand-in of eleventh 10", "[eleventh-10]") {
  SUCCEED();
}
TEST_CASE("a stand-in of turn 15", "[turn-15]") {
  SUCCEED();
}

TEST_CASE("33 turns have each 33rd of the cases") {
  std::string all;
  for (int turn = 0; turn < 33; ++turn) {
    const std::string ran = run("PLIMSOLL_TURN=" + std::to_string(turn) + " " + this_program() + " 'a 33rd of cases'");
    CHECK(times("ran ", ran) == 3);
    all += ran;
  }
  for (int seed = 1; seed <= 99; ++seed) CHECK(times("ran " + std::to_string(seed) + "\n", all) == 1);
}

TEST_CASE("tests tagged with a share run in that share of the turns, where all are asked for, and where they are named",
          "[repeat]") {
  const auto stand_ins = [](const std::string& text) {
    std::string shares;
    for (const std::string share : {"eleventh 0", "eleventh 4", "eleventh 10", "turn 15"}) {
      if (times("a stand-in of " + share + "\n", text) == 1) shares += share + " ";
    }
    return shares;
  };
  for (const auto& [turn, expected] : {std::pair{0, "eleventh 0 "},
                                       {4, "eleventh 4 "},
                                       {5, ""},
                                       {10, "eleventh 10 "},
                                       {11, "eleventh 0 "},
                                       {15, "eleventh 4 turn 15 "},
                                       {16, ""},
                                       {32, "eleventh 10 "}}) {
    const std::string of_turn = "PLIMSOLL_TURN=" + std::to_string(turn) + " " + this_program();
    const std::string listed = run(of_turn + " --list-tests");
    CHECK(stand_ins(listed) == expected);
    CHECK(times("a case that ends by an exception is repeated too\n", listed) == 1);
    CHECK(times("(1 assertion in 1 test case)", run(of_turn + " 'a stand-in of eleventh 4'")) == 1);
  }
  CHECK(stand_ins(run("PLIMSOLL_TURN=1 PLIMSOLL_TESTS=all " + this_program() + " --list-tests")) ==
        "eleventh 0 eleventh 4 eleventh 10 turn 15 ");
}

TEST_CASE("a case that ends by an exception is repeated too", "[repeat]") {
  const std::string first = run(this_program() + " 'a planted exception'");
  CHECK(times("ran ", first) == 5);
  const std::string again = run(line_to_repeat(first));
  CHECK(times("ran ", again) == 1);
  CHECK(times("ran 4\n", again) == 1);
  CHECK(times("planted\n", again) >= 1);
}

TEST_CASE("what fails outside of cases is repeated as a whole", "[repeat]") {
  const std::string first = run(this_program() + " 'a planted failure behind the cases'");
  CHECK(line_to_repeat(first) ==
        std::string(std::filesystem::proximate(this_program())) + " 'a planted failure behind the cases'");
}

TEST_CASE("a case that no test has, and a word that is no number, are refused", "[repeat]") {
  const std::string test = this_program() + " 'nothing planted'; echo \"exit code $?\"";
  CHECK(times("exit code 0", run("PLIMSOLL_CASE=2 " + test)) == 1);
  const std::string beyond = run("PLIMSOLL_CASE=3 " + test);
  CHECK(times("PLIMSOLL_CASE: no test that ran has a case 3\nexit code 2", beyond) == 1);
  for (const std::string word : {"x", "3x", "-1", "''"}) {
    INFO(word);
    CHECK(times("PLIMSOLL_CASE: expected the number of a case, found '", run("PLIMSOLL_CASE=" + word + " " + test)) ==
          1);
  }
}

TEST_CASE("a test that passes says nothing of repeating", "[repeat]") {
  const std::string ended = run(this_program() + " 'nothing planted'");
  CHECK(times("to repeat it", ended) == 0);
  CHECK(times("All tests passed (3 assertions", ended) == 1);
}

}  // namespace
}  // namespace plimsoll
