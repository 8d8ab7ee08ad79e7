#include "tests/random_case.h"

#include <exception>
#include <filesystem>

namespace plimsoll {

RandomCaseState& random_case_state() {
  static RandomCaseState state;  // Catch2 tells its listeners of a failure, but not where in the test it was
  return state;
}

RandomCase::RandomCase(std::uint64_t seed, std::uint64_t number) : seed_(seed) {
  random_case_state().current = number;
  random_case_state().has_run = true;
}

RandomCase::~RandomCase() {
  if (std::uncaught_exceptions() == 0) random_case_state().current.reset();
}

RandomCases random_cases(std::uint64_t first, std::uint64_t last) {
  RandomCaseState& state = random_case_state();
  const std::uint64_t behind = last + 1, number = state.counted;
  state.counted += behind - first;
  if (!state.chosen) return {first, behind, number};
  if (*state.chosen < number || *state.chosen >= state.counted) return {behind, behind, number};
  const std::uint64_t seed = first + (*state.chosen - number);
  return {seed, seed + 1, *state.chosen};
}

bool all_cases() {
  return !random_case_state().chosen;
}

std::string command_to_repeat(const std::string& test, std::optional<std::uint64_t> number) {
  std::string name;
  for (const char c : test) {
    if (c == ',' || c == '[' || c == '\\' || c == '"') name += '\\';  // for Catch2
    name += c == '\'' ? "'\\''" : std::string(1, c);                  // for the shell
  }
  const std::string program = std::filesystem::proximate(std::filesystem::read_symlink("/proc/self/exe"));
  return (number ? "PLIMSOLL_CASE=" + std::to_string(*number) + " " : "") + program + " '" + name + "'";
}

}  // namespace plimsoll
