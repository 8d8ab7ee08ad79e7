// The main program of all tests: Catch2's, which also says how to repeat a failure.

#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#if CATCH_VERSION_MAJOR >= 3
#include <catch2/catch_session.hpp>
#include <catch2/catch_test_case_info.hpp>
#include <catch2/reporters/catch_reporter_event_listener.hpp>
#include <catch2/reporters/catch_reporter_registrars.hpp>
#endif
#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/random_case.h"

namespace {

#if CATCH_VERSION_MAJOR < 3
using Listener = Catch::TestEventListenerBase;
using Answer = bool;  ///< whether the assertion may be forgotten: no
#else
using Listener = Catch::EventListenerBase;
using Answer = void;
#endif

/// Says, after a test that failed, what to type to see its first failure again.
class Repeats : public Listener {
 public:
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& test) override {
    Listener::testCaseStarting(test);
    plimsoll::random_case_state().current.reset();
    plimsoll::random_case_state().counted = 0;
    command_.clear();
    name_ = test.name;
  }

  Answer assertionEnded(const Catch::AssertionStats& assertion) override {
    if (!assertion.assertionResult.isOk() && command_.empty())
      command_ = plimsoll::command_to_repeat(name_, plimsoll::random_case_state().current);
    return Answer();
  }

  void testCaseEnded(const Catch::TestCaseStats& test) override {
    Listener::testCaseEnded(test);
    if (!command_.empty()) std::cout << "\nto repeat it:\n" << command_ << "\n" << std::flush;
  }

 private:
  std::string name_, command_;
};

CATCH_REGISTER_LISTENER(Repeats)

constexpr int wrong_use = 2;
constexpr unsigned elevenths = 11, turns = 33;

bool choose_case() {
  const char* word = std::getenv("PLIMSOLL_CASE");
  if (word != nullptr) plimsoll::random_case_state().chosen = plimsoll::number_in(word);
  return word == nullptr || plimsoll::random_case_state().chosen;
}

bool knows_which_tests() {
  return plimsoll::every_case() || std::getenv("PLIMSOLL_TESTS") == nullptr;
}

/// Of the tests that take seconds those of other elevenths and turns, unless tests are named or all are asked for.
void leave_out_shares(Catch::Session& session) {
  std::vector<std::string>& asked = session.configData().testsOrTags;
  if (plimsoll::every_case() || plimsoll::random_case_state().chosen || !asked.empty()) return;
  std::string others = "~[.]";  // a filter that only leaves out would run hidden tests, too
  for (const auto& [share, of] : {std::pair{"eleventh", elevenths}, {"turn", turns}}) {
    for (unsigned part = 0; part < of; ++part) {
      if (part != *plimsoll::turn() % of) others += std::string("~[") + share + "-" + std::to_string(part) + "]";
    }
  }
  asked.push_back(std::move(others));
}

}  // namespace

int main(int argc, char** argv) {
  if (!choose_case()) {
    std::cerr << "PLIMSOLL_CASE: expected the number of a case, found '" << std::getenv("PLIMSOLL_CASE") << "'\n";
    return wrong_use;
  }
  if (!plimsoll::turn()) {
    std::cerr << "PLIMSOLL_TURN: expected a number, found '" << std::getenv("PLIMSOLL_TURN") << "'\n";
    return wrong_use;
  }
  if (!knows_which_tests()) {
    std::cerr << "PLIMSOLL_TESTS: expected 'all', found '" << std::getenv("PLIMSOLL_TESTS") << "'\n";
    return wrong_use;
  }
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  leave_out_shares(session);
  const int failed = session.run();
  const plimsoll::RandomCaseState& state = plimsoll::random_case_state();
  if (!state.chosen || state.has_run) return failed;
  std::cerr << "PLIMSOLL_CASE: no test that ran has a case " << *state.chosen << "\n";
  return wrong_use;
}
