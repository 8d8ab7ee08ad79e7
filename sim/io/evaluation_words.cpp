#include "sim/io/evaluation_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/io/input_error.h"

namespace plimsoll {
namespace {

constexpr std::int64_t most_evaluated = 1'000'000;

constexpr std::string_view evaluation_words = "expected every=N[,batches=N][,samples=N]";

}  // namespace

Parsed<Evaluation> read_evaluation(std::string_view text) {
  Parsed<Evaluation> made;
  std::optional<std::uint32_t> every, batches;
  using Option = std::pair<std::string_view, std::optional<std::uint32_t>*>;
  const std::array<Option, 3> options{Option{"every", &every}, Option{"batches", &batches},
                                      Option{"samples", &made.value.samples}};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view one = text.substr(begin, end - begin), name = one.substr(0, one.find('='));
    begin = end + 1;
    const auto found = std::ranges::find(options, name, &Option::first);
    if (found == options.end() || name.size() == one.size()) {
      made.complaint = fmt::format("{}, found '{}'", evaluation_words, one);
      return made;
    }
    const Parsed<std::int64_t> number = parse_integer(one.substr(name.size() + 1));
    if (!number.fine() || number.value < 1 || number.value > most_evaluated) {
      made.complaint = fmt::format("{}: expected a whole number from 1 to {}, found '{}'", name, most_evaluated,
                                   one.substr(name.size() + 1));
      return made;
    }
    if (*found->second) {
      made.complaint = fmt::format("{}: given twice", name);
      return made;
    }
    *found->second = static_cast<std::uint32_t>(number.value);
  }
  if (!every) made.complaint = fmt::format("{}, found '{}'", evaluation_words, text);
  made.value.every = every.value_or(1);
  made.value.batches = batches.value_or(1);
  return made;
}

std::optional<Evaluation> understood_evaluation(std::string_view option, std::string_view text) {
  if (text.empty()) return std::nullopt;
  const Parsed<Evaluation> read = read_evaluation(text);
  if (!read.fine()) throw InputError(fmt::format("{}: {}", option, read.complaint));
  return read.value;
}

std::string written(const Evaluation& evaluation) {
  std::string text = fmt::format("every={},batches={}", evaluation.every, evaluation.batches);
  if (evaluation.samples) text += fmt::format(",samples={}", *evaluation.samples);
  return text;
}

}  // namespace plimsoll
