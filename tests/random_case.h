#pragma once
// The cases of a test on random data. When one fails, the test program prints the command line that runs that case
// alone: PLIMSOLL_CASE=137 build/tests/test_core 'name of the test'.
//
//   for (const RandomCase seed : random_cases(1, 200)) {
//     Random random(seed);
//     ...
//   }
//   if (all_cases()) CHECK(of_all_together > 100);

#include <cstdint>
#include <optional>
#include <string>

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
  /// Seeds up to the one before `behind`; `number` is that of the first of them.
  RandomCases(std::uint64_t first, std::uint64_t behind, std::uint64_t number)
      : first_(first), behind_(behind), number_(number) {}

  class Iterator {
   public:
    Iterator(std::uint64_t seed, std::uint64_t number) : seed_(seed), number_(number) {}
    RandomCase operator*() const { return {seed_, number_}; }
    Iterator& operator++() {
      ++seed_, ++number_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.seed_ == b.seed_; }

   private:
    std::uint64_t seed_, number_;
  };
  Iterator begin() const { return {first_, number_}; }
  Iterator end() const { return {behind_, 0}; }

 private:
  std::uint64_t first_, behind_, number_;
};

/// A case for each seed from `first` to `last`. A test's cases are counted from 0 through all that it asks for here,
/// whether they come to run or not; where PLIMSOLL_CASE names one, only that one runs.
RandomCases random_cases(std::uint64_t first, std::uint64_t last);

/// Whether PLIMSOLL_CASE names none: what is asked of many cases together holds then only.
bool all_cases();

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
