#pragma once
// The cases of a test on random data. When one fails, the test program prints the command line that runs that case
// alone: PLIMSOLL_CASE=137 build/tests/test_core 'name of the test'.
//
//   for (const RandomCase seed : random_cases(1, 200)) {
//     Random random(seed);
//     ...
//   }
//   if (all_cases()) CHECK(of_all_together > 100);
//
// A test that takes long draws fewer: an eleventh in every run, all with PLIMSOLL_TESTS=all. PLIMSOLL_TURN=N says
// which one (N mod 11). (Seeds choose small numbers by their remainders: of a fifth all had the same.)
//
//   for (const RandomCase seed : fewer_cases(1, 200)) ...
//   if (all_cases()) CHECK(of_all_together > cases_of(100));
//
// A test that takes seconds and cannot draw fewer is tagged with one of [eleventh-0] to [eleventh-10]: a program that
// is not told which tests to run runs one of these elevenths, by PLIMSOLL_TURN (N mod 11), and with PLIMSOLL_TESTS=all
// every one. One that takes ten seconds is tagged with [turn-0] to [turn-32], its only turn (N mod 33).

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace plimsoll {

/// One case: what fails while it lives is its failure.
class RandomCase {
 public:
  RandomCase(std::uint64_t seed, std::uint64_t number);
  ~RandomCase();
  RandomCase(const RandomCase&) = delete;
  RandomCase& operator=(const RandomCase&) = delete;

  operator std::uint64_t() const { return seed_; }  // NOLINT(google-explicit-constructor): used as the seed it is

 private:
  std::uint64_t seed_;
};

class RandomCases {
 public:
  /// Every `step`th of the seeds before `behind`; `number` is that of the first of them.
  RandomCases(std::uint64_t first, std::uint64_t behind, std::uint64_t number, std::uint64_t step)
      : first_(first), behind_(behind), number_(number), step_(step) {}

  class Iterator {
   public:
    Iterator(std::uint64_t seed, std::uint64_t number, std::uint64_t step)
        : seed_(seed), number_(number), step_(step) {}
    RandomCase operator*() const { return {seed_, number_}; }
    Iterator& operator++() {
      seed_ += step_, number_ += step_;
      return *this;
    }
    friend bool operator!=(const Iterator& a, const Iterator& end) { return a.seed_ < end.seed_; }

   private:
    std::uint64_t seed_, number_, step_;
  };
  Iterator begin() const { return {first_, number_, step_}; }
  Iterator end() const { return {behind_, 0, step_}; }

 private:
  std::uint64_t first_, behind_, number_, step_;
};

/// A case for each seed from `first` to `last`. A test's cases are counted from 0 through all that it asks for here,
/// whether they come to run or not; where PLIMSOLL_CASE names one, only that one runs.
RandomCases random_cases(std::uint64_t first, std::uint64_t last);

/// As random_cases, but only every eleventh of them is tried, or two of fewer than 22, unless PLIMSOLL_TESTS=all: from
/// the first on, or with PLIMSOLL_TURN from one so many behind it. Numbers are those of all: PLIMSOLL_CASE may name
/// any. `one_of`: other than an eleventh; of a 33rd, the turns 0 to 32 have all.
RandomCases fewer_cases(std::uint64_t first, std::uint64_t last, std::uint64_t one_of = 11);

/// Whether PLIMSOLL_TESTS=all: what takes long, and what only many cases show.
bool every_case();

/// PLIMSOLL_TURN, 0 without; none where it is no number.
std::optional<std::uint64_t> turn();

/// Of what is counted over all cases, what is expected of those that fewer_cases() tries.
template <std::integral Count>
Count cases_of(Count all) {
  return every_case() ? all : all / 11;
}

/// Whether PLIMSOLL_CASE names none, and PLIMSOLL_TURN no other eleventh than the first: what is asked of many cases
/// together is known of all and of these only.
bool all_cases();

/// None where it is anything but a number.
std::optional<std::uint64_t> number_in(std::string_view text);

/// What the test program itself must know: see test_main.cpp.
struct RandomCaseState {
  std::optional<std::uint64_t> chosen;   ///< by PLIMSOLL_CASE
  std::optional<std::uint64_t> current;  ///< that runs, or that an exception has just ended
  std::uint64_t counted = 0;             ///< of the test so far
  bool has_run = false;                  ///< any case of any test
};
RandomCaseState& random_case_state();

/// What to type to run a test of this program again, one case of it or all.
std::string command_to_repeat(const std::string& test, std::optional<std::uint64_t> number);

}  // namespace plimsoll
