#include "experiments/sweep/value_ranges.h"

#include <fmt/format.h>

#include <cmath>

#include "sim/core/tolerance.h"

namespace plimsoll {
namespace {

using Words = Parsed<std::vector<std::string>>;

Words wrong(std::string complaint) {
  return {{}, std::move(complaint)};
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

Words listed(std::string_view inside) {
  Words words;
  for (std::size_t begin = 0; begin <= inside.size();) {
    const std::size_t end = std::min(inside.find(',', begin), inside.size());
    words.value.emplace_back(trimmed(inside.substr(begin, end - begin)));
    if (words.value.back().empty()) return wrong(fmt::format("an empty value in '{{{}}}'", inside));
    begin = end + 1;
  }
  return words;
}

/// `64 factor 2`: the end of a range, and how it gets there.
struct RangeEnd {
  std::string_view last, way, by;
};

RangeEnd range_end(std::string_view text) {
  text = trimmed(text);
  const std::size_t gap = text.find(' ');
  if (gap == std::string_view::npos) return {text, "step", "1"};
  const std::string_view rest = trimmed(text.substr(gap));
  const std::size_t next = std::min(rest.find(' '), rest.size());
  return {text.substr(0, gap), rest.substr(0, next), trimmed(rest.substr(next))};
}

/// The values from `first` to at most `last`. A sum or product of rounded steps that misses the end by rounding is the
/// end.
Words stepped(double first, double last, double by, bool factor) {
  Words words;
  for (std::size_t k = 0; k <= most_values; ++k) {
    const auto steps = static_cast<double>(k);
    const double value = factor ? first * std::pow(by, steps) : first + by * steps;
    if (value > last + model_tolerance * std::abs(last)) return words;
    words.value.push_back(fmt::format("{:.12g}", value));
  }
  return wrong(fmt::format("a range of more than {} values", most_values));
}

Words ranged(std::string_view inside, std::size_t dots) {
  const RangeEnd end = range_end(inside.substr(dots + 2));
  const bool factor = end.way == "factor";
  const Parsed<double> first = parse_number(trimmed(inside.substr(0, dots))), last = parse_number(end.last),
                       by = parse_number(end.by);
  if (!first.fine() || !last.fine() || !by.fine() || (!factor && end.way != "step")) {
    return wrong(fmt::format(
        "expected a range such as {{1..8}}, {{8..64 step 8}} or {{1..64 factor 2}}, found '{{{}}}'", inside));
  }
  if (last.value < first.value) return wrong(fmt::format("the range '{{{}}}' ends before it begins", inside));
  if (factor ? by.value <= 1 || first.value <= 0 : by.value <= 0) {
    return wrong(
        fmt::format("the range '{{{}}}' does not grow: expected a step above 0, or a factor above 1 of a "
                    "number above 0",
                    inside));
  }
  return stepped(first.value, last.value, by.value, factor);
}

}  // namespace

Parsed<std::vector<std::string>> words_meant_by(std::string_view word) {
  const std::size_t open = word.find('{'), close = word.find('}');
  if (open == std::string_view::npos && close == std::string_view::npos) return {{std::string(word)}, ""};
  if (open == std::string_view::npos || close < open) return wrong("a '}' without its '{'");
  if (close == std::string_view::npos) return wrong("a '{' without its '}': quote a word that has commas");
  const std::string_view inside = word.substr(open + 1, close - open - 1);
  const std::size_t dots = inside.find("..");
  const Words values = dots == std::string_view::npos ? listed(inside) : ranged(inside, dots);
  const Words rest = words_meant_by(word.substr(close + 1));
  if (!values.fine()) return values;
  if (!rest.fine()) return rest;
  if (values.value.size() * rest.value.size() > most_values) {
    return wrong(fmt::format("stands for more than {} words", most_values));
  }
  Words words;
  for (const std::string& value : values.value) {
    for (const std::string& tail : rest.value) {
      words.value.push_back(std::string(word.substr(0, open)).append(value).append(tail));
    }
  }
  return words;
}

}  // namespace plimsoll
