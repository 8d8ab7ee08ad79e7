#include "sim/io/parameter_groups.h"

#include <algorithm>

#include "sim/core/names.h"
#include "sim/io/input_error.h"
#include "sim/io/one_of.h"

namespace plimsoll {
namespace {

std::string_view without_spaces(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> parts_at(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find_first_of(separators);
    parts.push_back(without_spaces(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// What a group's parameters can be updated by.
std::vector<std::string_view> names_of_optimizers() {
  std::vector<std::string_view> names = names_of<Optimizer>();
  std::erase(names, written(Optimizer::none));
  return names;
}

}  // namespace

Parsed<std::vector<ParameterGroup>> parse_parameter_groups(std::string_view text) {
  Parsed<std::vector<ParameterGroup>> parsed;
  for (const std::string_view part : parts_at(text, ",")) {
    const std::size_t sign = part.rfind('=');
    const std::string_view pattern = without_spaces(part.substr(0, sign));
    if (sign == std::string_view::npos || pattern.empty()) {
      parsed.complaint = "expected PATTERN=OPTIMIZER, such as '*norm*=adam', found '" + std::string(part) + "'";
      return parsed;
    }
    const std::string word(without_spaces(part.substr(sign + 1)));
    const std::optional<Optimizer> by = from_name<Optimizer>(word);
    if (!by || *by == Optimizer::none) {
      const std::vector<std::string_view> names = names_of_optimizers();
      parsed.complaint = "expected " + alternatives(names) + " for '" + std::string(pattern) + "', found '" + word +
                         "'" + suggestion(word, std::span<const std::string_view>(names));
      return parsed;
    }
    parsed.value.push_back({std::string(pattern), *by});
  }
  return parsed;
}

std::string written(const std::vector<ParameterGroup>& groups) {
  std::string text;
  for (const ParameterGroup& group : groups) {
    text += (text.empty() ? "" : ", ") + group.pattern + "=" + std::string(written(group.optimizer));
  }
  return text;
}

std::string pattern_suggestion(const std::string& pattern, const std::vector<std::string>& names) {
  std::vector<std::string> words = names;
  for (const std::string& name : names) {
    for (const std::string_view word : parts_at(name, ".")) words.emplace_back(word);
  }
  for (const std::string_view typed : parts_at(pattern, "*?.")) {
    if (typed.empty() || std::ranges::any_of(names, [&](const std::string& n) { return n.find(typed) != n.npos; })) {
      continue;
    }
    const std::string near = suggestion(typed, words);
    const std::size_t first = near.find('\''), last = near.rfind('\'');
    if (first == std::string::npos) continue;
    const auto place = static_cast<std::size_t>(typed.data() - pattern.data());
    std::string better = pattern;
    better.replace(place, typed.size(), near.substr(first + 1, last - first - 1));
    return "; did you mean '" + better + "'?";
  }
  const bool is_word = pattern.find_first_of("*?[") == std::string::npos;
  const bool is_in_one = std::ranges::any_of(names, [&](const std::string& n) { return n.find(pattern) != n.npos; });
  return is_word && is_in_one ? "; did you mean '*" + pattern + "*'?" : "";
}

}  // namespace plimsoll
