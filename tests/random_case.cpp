#include "tests/random_case.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>

namespace plimsoll {

RandomCaseState& random_case_state() {
  static RandomCaseState state;  // Catch2 tells its listeners of a failure, but not where in the test it was
  return state;
}

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

RandomCase::RandomCase(std::uint64_t seed, std::uint64_t number) : seed_(seed) {
  random_case_state().current = number;
  random_case_state().has_run = true;
}

RandomCase::~RandomCase() {
  if (std::uncaught_exceptions() == 0) random_case_state().current.reset();
}

namespace {

constexpr std::uint64_t eleventh = 11;

RandomCases counted_cases(std::uint64_t first, std::uint64_t last, std::uint64_t step) {
  RandomCaseState& state = random_case_state();
  const std::uint64_t behind = last + 1, number = state.counted;
  state.counted += behind - first;
  if (!state.chosen) {
    const std::uint64_t now = turn().value_or(0), skipped = (step > eleventh ? now : now % eleventh) % step;
    return {first + skipped, behind, number + skipped, step};
  }
  if (*state.chosen < number || *state.chosen >= state.counted) return {behind, behind, number, step};
  const std::uint64_t seed = first + (*state.chosen - number);
  return {seed, seed + 1, *state.chosen, step};
}

}  // namespace

RandomCases random_cases(std::uint64_t first, std::uint64_t last) {
  return counted_cases(first, last, 1);
}

RandomCases fewer_cases(std::uint64_t first, std::uint64_t last, std::uint64_t one_of) {
  const std::uint64_t half = (last - first) / 2 + 1;  // of so few, two
  return counted_cases(first, last, every_case() ? 1 : std::min(one_of, half));
}

std::optional<std::uint64_t> turn() {
  const char* word = std::getenv("PLIMSOLL_TURN");
  return word == nullptr ? 0 : number_in(word);
}

bool every_case() {
  const char* asked = std::getenv("PLIMSOLL_TESTS");
  return asked != nullptr && asked == std::string_view("all");  // main() refuses other words
}

bool all_cases() {
  return !random_case_state().chosen && (every_case() || turn().value_or(0) % eleventh == 0);
}

std::string command_to_repeat(const std::string& test, std::optional<std::uint64_t> number) {
  std::string name;
  for (const char c : test) {
    if (c == ',' || c == '[' || c == '\\' || c == '"') name += '\\';  // for Catch2
    name += c == '\'' ? "'\\''" : std::string(1, c);                  // for the shell
  }
  const std::string program = std::filesystem::proximate(std::filesystem::read_symlink("/proc/self/exe"));
  const std::string of_turn =
      number || every_case() || turn() == 0 ? "" : "PLIMSOLL_TURN=" + std::to_string(*turn()) + " ";
  return std::string(every_case() ? "PLIMSOLL_TESTS=all " : "") + of_turn +
         (number ? "PLIMSOLL_CASE=" + std::to_string(*number) + " " : "") + program + " '" + name + "'";
}

}  // namespace plimsoll
